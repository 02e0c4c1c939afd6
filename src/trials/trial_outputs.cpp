#include "src/trials/trial_outputs.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "kernel_templates/indexer_scores.args.h"
#include "kernel_templates/rope_kv_append.args.h"
#include "src/executor/device_state.hpp"
#include "src/plan/step_bucket.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::trials {
namespace {

using executor::StepOutput;
using Form = StepOutput::Form;
using Bytes = std::vector<std::byte>;

bool is_pool(Form form) {
  return form != Form::plain && form != Form::fp8_tiles && form != Form::fp8_rows;
}

std::uint8_t byte_at(const Bytes& bytes, std::size_t at) {
  return static_cast<std::uint8_t>(bytes[at]);
}

float power_of_two(std::uint8_t ue8m0) {
  return ue8m0 == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, ue8m0 - 127);
}

/// Appends numbers to the bytes of an f32 output.
class Values {
 public:
  explicit Values(Bytes& bytes) : bytes_(bytes) {}

  void add(float value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void add_poison(Poison poison) {
    bytes_.insert(bytes_.end(), sizeof(float), std::byte{static_cast<unsigned char>(poison)});
  }

 private:
  Bytes& bytes_;
};

/// An entry's 512 numbers. Layout: kernel_templates/rope_kv_append.args.h.
void add_kv_entry(const Bytes& page, int place, Values& values) {
  const auto at = static_cast<std::size_t>(place) * kernels::KV_ENTRY_STRIDE;
  for (std::size_t i = 0; i < kernels::KV_QUANT_DIMS; ++i) {
    values.add(reference::e4m3_value(byte_at(page, at + i)) *
               power_of_two(byte_at(page, at + kernels::KV_DATA_BYTES + i / kernels::KV_GROUP)));
  }
  for (std::size_t i = 0; i < kernels::KV_ROPE_DIMS; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, page.data() + at + kernels::KV_QUANT_DIMS + 2 * i, sizeof bits);
    values.add(reference::bf16_value(bits));
  }
}

/// An index key's 128 numbers. Layout: kernel_templates/indexer_scores.args.h.
void add_index_key(const Bytes& page, int place, Values& values) {
  const std::size_t codes = static_cast<std::size_t>(place) * kernels::INDEX_CODE_BYTES;
  const std::size_t scales = std::size_t{kernels::KV_PAGE_ENTRIES} * kernels::INDEX_CODE_BYTES +
                             static_cast<std::size_t>(place) * kernels::INDEX_SCALE_BYTES;
  for (std::size_t i = 0; i < kernels::INDEX_DIMS; ++i) {
    const std::uint8_t both = byte_at(page, codes + i / 2);
    const auto nibble = static_cast<std::uint8_t>(i % 2 == 0 ? both & 15U : both >> 4U);
    values.add(reference::e2m1_value(nibble) *
               power_of_two(byte_at(page, scales + i / kernels::INDEX_GROUP)));
  }
}

/// Zeros over an entry: what is left is what a launch must leave alone.
void clear_entry(Bytes& page, int place, bool index_key) {
  const auto clear = [&](std::size_t at, std::size_t count) {
    std::memset(page.data() + at, 0, count);
  };
  const auto index = static_cast<std::size_t>(place);
  if (!index_key) {
    clear(index * kernels::KV_ENTRY_STRIDE, kernels::KV_DATA_BYTES + kernels::KV_SCALE_BYTES);
    return;
  }
  clear(index * kernels::INDEX_CODE_BYTES, kernels::INDEX_CODE_BYTES);
  clear(std::size_t{kernels::KV_PAGE_ENTRIES} * kernels::INDEX_CODE_BYTES +
            index * kernels::INDEX_SCALE_BYTES,
        kernels::INDEX_SCALE_BYTES);
}

/// Groups of 128 codes, each with the scale that `scale_of(group)` counts.
template <class ScaleOf>
Bytes decode_fp8(const Bytes& codes, const Bytes& scales, Poison poison, const ScaleOf& scale_of) {
  Bytes decoded;
  decoded.reserve(codes.size() * sizeof(float));
  Values values(decoded);
  const std::byte filled{static_cast<unsigned char>(poison)};
  for (std::size_t group = 0; group * 128 < codes.size(); ++group) {
    const auto* bytes = scales.data() + scale_of(group) * sizeof(float);
    float scale = 0;
    std::memcpy(&scale, bytes, sizeof scale);
    const bool has_scale =
        std::any_of(bytes, bytes + sizeof scale, [&](std::byte b) { return b != filled; });
    for (std::size_t i = group * 128; i < group * 128 + 128; ++i) {
      if (!has_scale && codes[i] == filled) {
        values.add_poison(poison);
      } else {
        values.add(reference::e4m3_value(byte_at(codes, i)) * scale);
      }
    }
  }
  return decoded;
}

}  // namespace

TrialOutputs::TrialOutputs(const std::vector<StepOutput>& outputs, const EdgeCase& edge_case,
                           const PageShare& csa, const PageShare& hca) {
  for (const StepOutput& form : outputs) {
    Output output{.form = form, .stretches = {}, .entries = {}};
    const auto address = reinterpret_cast<cu::CUdeviceptr>(form.at);
    if (is_pool(form.form)) {
      add_pages(output, edge_case, csa, hca);
    } else if (form.bytes > 0) {
      output.stretches.push_back({address, form.bytes});
      if (form.form == Form::fp8_tiles) {
        output.stretches.push_back(
            {reinterpret_cast<cu::CUdeviceptr>(form.scales), form.bytes / 128 * sizeof(float)});
      } else if (form.form == Form::fp8_rows) {
        const std::uint64_t rows = form.bytes / static_cast<std::uint64_t>(form.columns);
        output.stretches.push_back(
            {reinterpret_cast<cu::CUdeviceptr>(form.scales),
             rows * static_cast<std::uint64_t>(form.scale_stride) * sizeof(float)});
      }
    }
    if (!output.stretches.empty()) outputs_.push_back(std::move(output));
  }
}

void TrialOutputs::add_pages(Output& output, const EdgeCase& edge_case, const PageShare& csa,
                             const PageShare& hca) {
  const Form form = output.form.form;
  const bool index_key = form == Form::index_keys;
  const bool window = form == Form::window_entries || form == Form::pass_entries;
  const int ratio = window ? 1 : form == Form::hca_entries ? 128 : 4;
  const std::uint64_t page_bytes =
      index_key ? std::uint64_t{kIndexPageBytes} : std::uint64_t{kernels::KV_PAGE_BYTES};
  std::map<int, std::size_t> known;  // page -> stretch
  const int rows = edge_case.bucket_rows;
  for (int row = 0; row < edge_case.live_rows; ++row) {
    const int sequence = edge_case.inputs.sequences(rows)[row];
    const int position = edge_case.inputs.positions(rows)[row];
    int page = 0;
    int entry = position / ratio;
    if (window) {
      const int slot = form == Form::pass_entries ? output.form.first_entry + row
                                                  : sequence * kWindowRing + position % kWindowRing;
      page = slot / kernels::KV_PAGE_ENTRIES;
      entry = slot;
    } else {
      page =
          (form == Form::hca_entries ? hca : csa).page(sequence, entry / kernels::KV_PAGE_ENTRIES);
    }
    const auto [found, is_new] = known.emplace(page, output.stretches.size());
    if (is_new) {
      output.stretches.push_back({reinterpret_cast<cu::CUdeviceptr>(output.form.at) +
                                      static_cast<std::uint64_t>(page) * page_bytes,
                                  page_bytes});
    }
    if ((position + 1) % ratio == 0) {
      output.entries.push_back({found->second, entry % kernels::KV_PAGE_ENTRIES});
    }
  }
}

std::vector<Stretch> TrialOutputs::kept(const Stretch& restored) const {
  std::vector<Stretch> kept;
  for (const Output& output : outputs_) {
    if (!output.form.updated) continue;
    for (const Stretch& one : output.stretches) {
      if (one.at < restored.at || one.at >= restored.at + restored.bytes) kept.push_back(one);
    }
  }
  return kept;
}

void TrialOutputs::poison(const cu::Stream& stream, Poison poison) const {
  const cu::DriverApi& driver = stream.driver();
  for (const Output& output : outputs_) {
    if (output.form.updated) continue;
    for (const Stretch& one : output.stretches) {
      driver.check(driver.cuMemsetD8Async(one.at, static_cast<unsigned char>(poison), one.bytes,
                                          stream.raw()),
                   "cuMemsetD8Async");
    }
  }
}

std::span<std::byte> PinnedBytes::room_for(std::size_t bytes) {
  if (buffer_.bytes().size() < bytes) {
    buffer_ = {};
    buffer_ = cu::PinnedBuffer::allocate(context_, bytes + bytes / 2);
  }
  return buffer_.bytes().first(bytes);
}

std::vector<KernelOutput> TrialOutputs::fetch(const cu::Stream& stream, Poison poison,
                                              PinnedBytes& host) const {
  const cu::DriverApi& driver = stream.driver();
  std::uint64_t all = 0;
  for (const Output& output : outputs_)
    for (const Stretch& one : output.stretches)
      all += one.bytes;
  std::span<const std::byte> left = host.room_for(all);
  std::byte* to = host.room_for(all).data();
  for (const Output& output : outputs_) {
    for (const Stretch& one : output.stretches) {
      driver.check(driver.cuMemcpyDtoHAsync_v2(to, one.at, one.bytes, stream.raw()),
                   "cuMemcpyDtoHAsync");
      to += one.bytes;
    }
  }
  stream.synchronize();
  std::vector<std::vector<Bytes>> raw;
  for (const Output& output : outputs_) {
    raw.emplace_back();
    for (const Stretch& one : output.stretches) {
      raw.back().emplace_back(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(one.bytes));
      left = left.subspan(one.bytes);
    }
  }
  std::vector<KernelOutput> fetched;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    KernelOutput result{.name = std::string(output.form.name),
                        .dtype = output.form.dtype,
                        .tolerance = output.form.tolerance,
                        .norm_tolerance = output.form.norm_tolerance,
                        .bytes = {}};
    if (output.form.form == Form::plain) {
      result.bytes = std::move(raw[i][0]);
      fetched.push_back(std::move(result));
      continue;
    }
    result.dtype = Dtype::f32;
    if (output.form.form == Form::fp8_tiles || output.form.form == Form::fp8_rows) {
      const bool tiles = output.form.form == Form::fp8_tiles;
      const auto groups = static_cast<std::size_t>(output.form.columns / 128);
      const auto stride = static_cast<std::size_t>(output.form.scale_stride);
      result.bytes = decode_fp8(raw[i][0], raw[i][1], poison, [&](std::size_t group) {
        return tiles ? group : group / groups * stride + group % groups;
      });
      fetched.push_back(std::move(result));
      continue;
    }
    const bool index_key = output.form.form == Form::index_keys;
    Values values(result.bytes);
    for (const Entry& entry : output.entries) {
      Bytes& page = raw[i][entry.page];
      if (index_key) {
        add_index_key(page, entry.place, values);
      } else {
        add_kv_entry(page, entry.place, values);
      }
      clear_entry(page, entry.place, index_key);
    }
    KernelOutput rest{.name = result.name + " beside the new entries",
                      .dtype = Dtype::u8,
                      .tolerance = 0,
                      .bytes = {}};
    for (const Bytes& page : raw[i])
      rest.bytes.insert(rest.bytes.end(), page.begin(), page.end());
    fetched.push_back(std::move(result));
    fetched.push_back(std::move(rest));
  }
  return fetched;
}

}  // namespace ingot::trials
