#include "src/executor/device_state.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>

#include "kernel_templates/common/kv_layout.cuh"
#include "kernel_templates/compress_kv.args.h"
#include "src/plan/step_bucket.hpp"

namespace ingot::executor {
namespace {

constexpr std::uint64_t kRingBytes =
    std::uint64_t{kWindowRing} / kernels::KV_PAGE_ENTRIES * kernels::KV_PAGE_BYTES;

std::uint64_t compressor_bytes(int ratio, bool index_keys) {
  return std::uint64_t{kCompressorRows} *
         static_cast<std::uint64_t>(kernels::compress_kv_state_floats(ratio, index_keys)) * 4;
}

/// Of one layer.
std::uint64_t pass_bytes(int step_rows) {
  if (step_rows <= kMostNarrowRows) return 0;
  return static_cast<std::uint64_t>((step_rows + kernels::KV_PAGE_ENTRIES - 1) /
                                    kernels::KV_PAGE_ENTRIES) *
         kernels::KV_PAGE_BYTES;
}

int pages_of(std::int64_t tokens, std::int64_t page_tokens) {
  return static_cast<int>(std::max<std::int64_t>((tokens + page_tokens - 1) / page_tokens, 1));
}

void copy(const cu::Stream& stream, const void* from, void* to, std::uint64_t bytes) {
  const cu::DriverApi& driver = stream.driver();
  driver.check(
      driver.cuMemcpyDtoDAsync_v2(reinterpret_cast<cu::CUdeviceptr>(to),
                                  reinterpret_cast<cu::CUdeviceptr>(from), bytes, stream.raw()),
      "cuMemcpyDtoDAsync");
}

template <class T>
void copy_item(const cu::Stream& stream, T* base, std::uint64_t item_bytes, int from, int to) {
  if (base == nullptr) return;
  auto* bytes = reinterpret_cast<std::byte*>(base);
  copy(stream, bytes + item_bytes * static_cast<std::uint64_t>(from),
       bytes + item_bytes * static_cast<std::uint64_t>(to), item_bytes);
}

}  // namespace

StateCosts state_costs(const ModelConfig& config, std::int64_t max_context) {
  StateCosts costs;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    costs.slot += kRingBytes;
    const LayerKind kind = config.layer_kind(layer);
    if (kind == LayerKind::swa) continue;
    costs.slot += compressor_bytes(config.ratio(layer), false);
    if (kind == LayerKind::csa) {
      costs.slot += compressor_bytes(4, true);
      costs.csa_page += kernels::KV_PAGE_BYTES + kIndexPageBytes;
    } else {
      costs.hca_page += kernels::KV_PAGE_BYTES;
    }
  }
  costs.slot += 4 * static_cast<std::uint64_t>(pages_of(max_context, kCsaPageTokens) +
                                               pages_of(max_context, kHcaPageTokens));
  return costs;
}

std::uint64_t pass_window_bytes(const ModelConfig& config, int step_rows) {
  return pass_bytes(step_rows) * static_cast<std::uint64_t>(config.num_layers);
}

DeviceState::DeviceState(const cu::Context& context, const ModelConfig& config,
                         const StateSizes& sizes)
    : sizes_(sizes),
      csa_stride_(pages_of(sizes.max_context, kCsaPageTokens)),
      hca_stride_(pages_of(sizes.max_context, kHcaPageTokens)) {
  layers_.resize(static_cast<std::size_t>(config.num_layers));
  // Every array starts at a multiple of 256 bytes from the base; its address is its offset first.
  std::uint64_t end = 0;
  const auto place = [&](std::uint64_t item_bytes, int items, std::uint64_t more = 0) {
    const std::uint64_t at = end;
    end += (item_bytes * static_cast<std::uint64_t>(items) + more + 255) / 256 * 256;
    return at;
  };
  struct Offsets {
    std::array<std::uint64_t, 5> at{};
  };
  std::vector<Offsets> offsets;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const LayerKind kind = config.layer_kind(layer);
    const int ratio = config.ratio(layer);
    ratios_.push_back(ratio);
    Offsets o;
    o.at[0] = place(kRingBytes, sizes.slots, pass_bytes(sizes.step_rows));
    if (kind != LayerKind::swa) {
      o.at[1] =
          place(kernels::KV_PAGE_BYTES, kind == LayerKind::csa ? sizes.csa_pages : sizes.hca_pages);
      o.at[3] = place(compressor_bytes(ratio, false), sizes.slots);
    }
    if (kind == LayerKind::csa) {
      o.at[2] = place(kIndexPageBytes, sizes.csa_pages);
      o.at[4] = place(compressor_bytes(4, true), sizes.slots);
    }
    offsets.push_back(o);
  }
  pools_ = cu::DeviceBuffer::allocate(context, std::max<std::uint64_t>(end, 1));
  tables_ = cu::DeviceBuffer::allocate(
      context, 4 * (csa_table_ints() +
                    static_cast<std::size_t>(sizes.slots) * static_cast<std::size_t>(hca_stride_)));
  auto* base = pools_.as<kernels::u8>();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerState& layer = layers_[i];
    const auto& at = offsets[i].at;
    layer.window = base + at[0];
    if (ratios_[i] == 0) continue;
    layer.entries = base + at[1];
    layer.compressor = reinterpret_cast<float*>(base + at[3]);
    if (ratios_[i] != 4) continue;
    layer.index_keys = base + at[2];
    layer.index_compressor = reinterpret_cast<float*>(base + at[4]);
  }
}

void DeviceState::fill(const cu::Stream& stream) const {
  // Pages of entries and of keys: random codes, scales near one, small rope numbers.
  constexpr int kPages = 32;
  std::mt19937_64 random(1);
  std::vector<std::byte> entries(std::size_t{kPages} * kernels::KV_PAGE_BYTES);
  for (auto& byte : entries)
    byte = static_cast<std::byte>(random() & 0xbfU);  // no NaN codes
  for (std::size_t e = 0; e < std::size_t{kPages} * kernels::KV_PAGE_ENTRIES; ++e) {
    const std::size_t at = e * kernels::KV_ENTRY_STRIDE;
    for (std::size_t i = 0; i < 64; ++i)  // bf16 of about 2^-2
      entries[at + 449 + 2 * i] = static_cast<std::byte>(0x3eU | (random() & 0x80U));
    for (std::size_t i = 576; i < 584; ++i)
      entries[at + i] = static_cast<std::byte>(122 + random() % 3);
  }
  std::vector<std::byte> keys(std::size_t{kPages} * kIndexPageBytes);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool scale = i % kIndexPageBytes >= kernels::KV_PAGE_ENTRIES * kernels::INDEX_CODE_BYTES;
    keys[i] = static_cast<std::byte>(scale ? 126 + random() % 2 : random() & 0xffU);
  }
  const cu::DriverApi& driver = stream.driver();
  const auto replicate = [&](kernels::u8* to, const std::vector<std::byte>& from,
                             std::uint64_t bytes) {
    if (to == nullptr || bytes == 0) return;
    std::uint64_t done = std::min<std::uint64_t>(from.size(), bytes);
    driver.check(driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<cu::CUdeviceptr>(to), from.data(),
                                             done, stream.raw()),
                 "cuMemcpyHtoDAsync");
    for (; done < bytes; done = std::min(2 * done, bytes))
      copy(stream, to, to + done, std::min(done, bytes - done));
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerState& layer = layers_[i];
    replicate(layer.window, entries, kRingBytes * static_cast<std::uint64_t>(sizes_.slots));
    const auto pages =
        static_cast<std::uint64_t>(ratios_[i] == 4 ? sizes_.csa_pages : sizes_.hca_pages);
    replicate(layer.entries, entries, pages * kernels::KV_PAGE_BYTES);
    replicate(layer.index_keys, keys, pages * kIndexPageBytes);
    const auto zero = [&](float* state, std::uint64_t bytes) {
      if (state == nullptr) return;
      driver.check(
          driver.cuMemsetD8Async(reinterpret_cast<cu::CUdeviceptr>(state), 0,
                                 bytes * static_cast<std::uint64_t>(sizes_.slots), stream.raw()),
          "cuMemsetD8Async");
    };
    zero(layer.compressor, compressor_bytes(ratios_[i], false));
    zero(layer.index_compressor, compressor_bytes(4, true));
  }
  stream.synchronize();
}

void DeviceState::copy_slot(const cu::Stream& stream, int from, int to) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerState& layer = layers_[i];
    copy_item(stream, layer.window, kRingBytes, from, to);
    copy_item(stream, layer.compressor, compressor_bytes(ratios_[i], false), from, to);
    copy_item(stream, layer.index_compressor, compressor_bytes(4, true), from, to);
  }
}

void DeviceState::copy_csa_page(const cu::Stream& stream, int from, int to) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (ratios_[i] != 4) continue;
    copy_item(stream, layers_[i].entries, kernels::KV_PAGE_BYTES, from, to);
    copy_item(stream, layers_[i].index_keys, kIndexPageBytes, from, to);
  }
}

void DeviceState::copy_hca_page(const cu::Stream& stream, int from, int to) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (ratios_[i] == 128) {
      copy_item(stream, layers_[i].entries, kernels::KV_PAGE_BYTES, from, to);
    }
  }
}

void DeviceState::write_csa_row(const cu::Stream& stream, int slot, std::size_t first,
                                std::span<const int> pages) const {
  const std::size_t at =
      static_cast<std::size_t>(slot) * static_cast<std::size_t>(csa_stride_) + first;
  tables_.copy_from_host(stream, std::as_bytes(pages), 4 * at);
}

void DeviceState::write_hca_row(const cu::Stream& stream, int slot, std::size_t first,
                                std::span<const int> pages) const {
  const std::size_t at = csa_table_ints() +
                         static_cast<std::size_t>(slot) * static_cast<std::size_t>(hca_stride_) +
                         first;
  tables_.copy_from_host(stream, std::as_bytes(pages), 4 * at);
}

}  // namespace ingot::executor
