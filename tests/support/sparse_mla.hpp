#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernel_templates/common/kv_layout.cuh"

namespace ingot::test {

/// Where the bytes of packed KV entries lie in a paged pool.
struct KvLayout {
  int page_entries = kernels::KV_PAGE_ENTRIES;
  int page_bytes = kernels::KV_PAGE_BYTES;
  int entry_stride = kernels::KV_ENTRY_STRIDE;
  bool scales_beside =
      kernels::KV_SCALES_BESIDE;  ///< behind each entry, else behind the page's last entry

  std::size_t entry_offset(int entry) const;
  std::size_t scale_offset(int entry) const;
};

/// One KV entry in plain numbers: what the packed bytes mean.
struct KvEntry {
  std::uint8_t codes[448];      ///< e4m3
  std::uint16_t rope[64];       ///< bf16
  std::uint8_t scale_bytes[7];  ///< ue8m0
};
void store_entry(std::span<std::uint8_t> pool, const KvLayout& layout, int entry,
                 const KvEntry& value);
KvEntry load_entry(std::span<const std::uint8_t> pool, const KvLayout& layout, int entry);

/// Inputs of one sparse MLA decode launch, as the kernels take them.
struct SparseMlaInputs {
  int rows = 0, heads = 0, window_slots = 0, selected_slots = 0;
  KvLayout window_layout, selected_layout;
  std::vector<std::uint16_t> q;  ///< [rows, heads, 512] bf16
  std::vector<std::uint8_t> window_pool, selected_pool;
  std::vector<int> window_indices, selected_indices, window_counts, selected_counts, positions;
  std::vector<float> sink, frequencies;
};

struct SparseMlaShape {
  int rows = 1, heads = 8, window_slots = 128, selected_slots = 64;
  KvLayout window_layout, selected_layout;
  int window_entries = 256, selected_entries = 512;  ///< of the pools
  /// Exponents of group scales are drawn from [lowest, highest].
  int lowest_scale = -10, highest_scale = -6;
  std::uint64_t seed = 1;
};
/// Random entries (no NaN), queries, sinks and positions; full lists without unused slots.
SparseMlaInputs random_inputs(const SparseMlaShape& shape);

/// The definition, in double: model specification 3.8 and step 7 of 3.6, without rounding.
/// @return [rows, heads, 512]
std::vector<double> sparse_mla_reference(const SparseMlaInputs& inputs, bool has_sink,
                                         bool inverse_rope);

/// How far a bf16 result is from the reference.
struct Difference {
  double relative = 0;       ///< Frobenius norm of the difference over that of the reference
  double worst_group = 0;    ///< the same of the worst (row, head, 64 dimensions)
  bool nan_differs = false;  ///< NaN in one but not in the other
};
Difference compare(std::span<const std::uint16_t> result, std::span<const double> reference);

}  // namespace ingot::test
