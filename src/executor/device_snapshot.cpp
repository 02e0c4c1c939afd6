// A sequence's state as bytes: of everything that a continuation, after any permitted rollback,
// can read, and nothing else, so that equal sequences have equal bytes wherever their pages lie.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel_templates/common/kv_layout.cuh"
#include "kernel_templates/compress_kv.args.h"
#include "kernel_templates/indexer_scores.args.h"
#include "runtime/base/byte_stream.hpp"
#include "src/executor/device_engine_impl.hpp"

namespace ingot {
namespace {

using executor::DeviceState;
using executor::LayerState;
using executor::SequenceRecord;

/// What snapshot_bytes() begins with; another layout of the state is another version.
constexpr std::string_view kStateFormat = "ingot device state 1";

constexpr std::size_t kEntryBytes = 584;  // 576 of data, 8 of scales; padding follows
constexpr std::int64_t kPageEntries = kernels::KV_PAGE_ENTRIES;

/// Items that lie `stride` bytes apart in device memory, of which `bytes` each belong to the state.
struct Run {
  const kernels::u8* at = nullptr;
  std::size_t bytes = 0, stride = 0, items = 0;

  std::size_t spanned() const { return items == 0 ? 0 : (items - 1) * stride + bytes; }
};
using Section = std::vector<Run>;

std::size_t bytes_of(const Section& section) {
  std::size_t bytes = 0;
  for (const Run& run : section)
    bytes += run.items * run.bytes;
  return bytes;
}

/// Positions [first, end) of a ring of `rows` rows.
Section ring_section(const kernels::u8* base, std::int64_t rows, std::size_t bytes,
                     std::size_t stride, std::int64_t first, std::int64_t end) {
  Section section;
  while (first < end) {
    const std::int64_t row = first % rows;
    const std::int64_t count = std::min(end - first, rows - row);
    section.push_back({base + static_cast<std::size_t>(row) * stride, bytes, stride,
                       static_cast<std::size_t>(count)});
    first += count;
  }
  return section;
}

/// The first `entries` entries in pages; what lies `offset` bytes from a page's start.
Section page_section(const kernels::u8* base, std::span<const int> pages, std::size_t page_bytes,
                     std::size_t offset, std::size_t bytes, std::size_t stride,
                     std::int64_t entries) {
  Section section;
  for (std::int64_t first = 0; first < entries; first += kPageEntries) {
    const auto page = static_cast<std::size_t>(pages[static_cast<std::size_t>(first / 64)]);
    section.push_back({base + page * page_bytes + offset, bytes, stride,
                       static_cast<std::size_t>(std::min(entries - first, kPageEntries))});
  }
  return section;
}

/// The oldest position of which the compressor's row may be read after going back to `length`.
std::int64_t first_row(int ratio, std::int64_t length) {
  if (ratio == 4) return std::max<std::int64_t>(length / 4 * 4 - 4, 0);
  return length % ratio == 0 ? length : length - 1;
}

Section compressor_section(const float* base, int ratio, bool index_keys, const SequenceRecord& r) {
  const std::size_t row =
      4 * static_cast<std::size_t>(kernels::compress_kv_state_floats(ratio, index_keys));
  const auto* slot = reinterpret_cast<const kernels::u8*>(base) +
                     row * kCompressorRows * static_cast<std::size_t>(r.slot);
  return ring_section(slot, kCompressorRows, row, row, first_row(ratio, r.rollback_floor),
                      r.length);
}

/// Where the state of a sequence lies, layer after layer.
std::vector<Section> sections_of(const ModelConfig& config, const DeviceState& state,
                                 const SequenceRecord& r) {
  std::vector<Section> sections;
  for (int i = 0; i < config.num_layers; ++i) {
    const LayerState& layer = state.layer(static_cast<std::size_t>(i));
    const int ratio = config.ratio(i);
    const std::size_t ring = std::size_t{kWindowRing} * kernels::KV_ENTRY_STRIDE;
    sections.push_back(ring_section(
        layer.window + ring * static_cast<std::size_t>(r.slot), kWindowRing, kEntryBytes,
        kernels::KV_ENTRY_STRIDE,
        std::max<std::int64_t>(r.rollback_floor - config.sliding_window + 1, 0), r.length));
    if (ratio == 0) continue;
    const auto& pages = ratio == 4 ? r.csa_pages : r.hca_pages;
    sections.push_back(compressor_section(layer.compressor, ratio, false, r));
    sections.push_back(page_section(layer.entries, pages, kernels::KV_PAGE_BYTES, 0, kEntryBytes,
                                    kernels::KV_ENTRY_STRIDE, r.length / ratio));
    if (ratio != 4) continue;
    sections.push_back(compressor_section(layer.index_compressor, ratio, true, r));
    sections.push_back(page_section(layer.index_keys, pages, kIndexPageBytes, 0,
                                    kernels::INDEX_CODE_BYTES, kernels::INDEX_CODE_BYTES,
                                    r.length / ratio));
    sections.push_back(page_section(
        layer.index_keys, pages, kIndexPageBytes, kPageEntries * kernels::INDEX_CODE_BYTES,
        kernels::INDEX_SCALE_BYTES, kernels::INDEX_SCALE_BYTES, r.length / ratio));
  }
  return sections;
}

std::size_t spanned(const Section& section) {
  std::size_t bytes = 0;
  for (const Run& run : section)
    bytes += run.spanned();
  return bytes;
}

std::string fetch(const cu::Stream& stream, const Section& section) {
  std::string staged(spanned(section), '\0');
  const cu::DriverApi& driver = stream.driver();
  char* to = staged.data();
  for (const Run& run : section) {
    driver.check(driver.cuMemcpyDtoHAsync_v2(to, reinterpret_cast<cu::CUdeviceptr>(run.at),
                                             run.spanned(), stream.raw()),
                 "cuMemcpyDtoHAsync");
    to += run.spanned();
  }
  stream.synchronize();
  std::string bytes;
  bytes.reserve(bytes_of(section));
  const char* from = staged.data();
  for (const Run& run : section) {
    for (std::size_t i = 0; i < run.items; ++i)
      bytes.append(from + i * run.stride, run.bytes);
    from += run.spanned();
  }
  return bytes;
}

void put(const cu::Stream& stream, const Section& section, std::string_view bytes) {
  std::string staged(spanned(section), '\0');
  const cu::DriverApi& driver = stream.driver();
  char* to = staged.data();
  for (const Run& run : section) {
    for (std::size_t i = 0; i < run.items; ++i, bytes.remove_prefix(run.bytes))
      std::memcpy(to + i * run.stride, bytes.data(), run.bytes);
    driver.check(driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<cu::CUdeviceptr>(run.at), to,
                                             run.spanned(), stream.raw()),
                 "cuMemcpyHtoDAsync");
    to += run.spanned();
  }
  stream.synchronize();
}

/// Bytes that a sequence of this length has in each section.
std::vector<std::size_t> section_bytes(const ModelConfig& config, const DeviceState& state,
                                       std::int64_t length, std::int64_t floor) {
  SequenceRecord like;
  like.length = length;
  like.rollback_floor = floor;
  // Which pages they are does not change how much they hold.
  like.csa_pages.assign(static_cast<std::size_t>(length / kCsaPageTokens + 1), 0);
  like.hca_pages.assign(static_cast<std::size_t>(length / kHcaPageTokens + 1), 0);
  std::vector<std::size_t> bytes;
  for (const Section& section : sections_of(config, state, like))
    bytes.push_back(bytes_of(section));
  return bytes;
}

}  // namespace

Result<std::string> DeviceEngine::snapshot_bytes(SequenceId sequence) const {
  const SequenceRecord& r = impl_->record(sequence, "saving a sequence");
  const ModelConfig& config = impl_->model_config;
  // Every rank holds the same state: KV entries and index keys are not split.
  impl_->apply_changes();
  ByteWriter out;
  out.text(kStateFormat);
  out.u64(static_cast<std::uint64_t>(config.num_layers));
  for (int i = 0; i < config.num_layers; ++i)
    out.u64(static_cast<std::uint64_t>(config.ratio(i)));
  out.u64(static_cast<std::uint64_t>(r.length));
  out.u64(static_cast<std::uint64_t>(r.rollback_floor));
  impl_->ranks.run([&](executor::EngineRank& rank) {
    if (rank.tp_rank != 0) return;
    for (const Section& section : sections_of(config, *rank.state, r))
      out.text(fetch(rank.stream, section));
  });
  return out.take();
}

Result<SequenceId> DeviceEngine::restore(std::string_view bytes) {
  const ModelConfig& config = impl_->model_config;
  ByteReader in(bytes);
  if (in.text() != kStateFormat) {
    return fail(ErrorCode::unsupported,
                "restoring a sequence: its state is of another kind or version of engine");
  }
  bool same_layers = in.u64() == static_cast<std::uint64_t>(config.num_layers);
  for (int i = 0; i < config.num_layers && same_layers; ++i)
    same_layers = in.u64() == static_cast<std::uint64_t>(config.ratio(i));
  if (!same_layers) {
    return fail(ErrorCode::unsupported,
                "restoring a sequence: its state is of a model with other layers");
  }
  const std::uint64_t length = in.u64(), floor = in.u64();
  if (!in.ok() || floor > length || length - floor > kMostRollback) {
    return fail(ErrorCode::corrupt, "restoring a sequence: its state contradicts itself");
  }
  if (length > static_cast<std::uint64_t>(impl_->max_context)) {
    return fail(ErrorCode::unsupported,
                fmt::format("restoring a sequence of {} tokens: the context holds {}", length,
                            impl_->max_context));
  }
  const auto tokens = static_cast<std::int64_t>(length);
  std::vector<std::string_view> parts;
  for (const std::size_t wanted :
       section_bytes(config, *impl_->ranks[0].state, tokens, static_cast<std::int64_t>(floor))) {
    parts.push_back(in.text());
    if (parts.back().size() != wanted) {
      return fail(ErrorCode::corrupt, "restoring a sequence: its state contradicts itself");
    }
  }
  if (!in.done()) return fail(ErrorCode::corrupt, "restoring a sequence: bytes are left over");

  executor::SequenceTable& table = impl_->table;
  const auto made = table.create();
  if (!made) {
    return fail(ErrorCode::exhausted,
                fmt::format("restoring a sequence: all {} places are taken; release one, or start "
                            "with more",
                            table.slots()));
  }
  SequenceRecord& r = *table.find(*made);
  if (table.csa_pages_needed(r, tokens) > table.free_csa_pages() ||
      table.hca_pages_needed(r, tokens) > table.free_hca_pages()) {
    table.release(*made);
    return fail(ErrorCode::exhausted,
                fmt::format("restoring a sequence of {} tokens: too few pages of context are free; "
                            "end sequences, or start with fewer or shorter ones",
                            tokens));
  }
  impl_->grow(r, tokens);
  r.length = tokens;
  r.rollback_floor = static_cast<std::int64_t>(floor);
  impl_->apply_changes();
  impl_->ranks.run([&](executor::EngineRank& rank) {
    const std::vector<Section> sections = sections_of(config, *rank.state, r);
    for (std::size_t i = 0; i < sections.size(); ++i)
      put(rank.stream, sections[i], parts[i]);
  });
  return *made;
}

}  // namespace ingot
