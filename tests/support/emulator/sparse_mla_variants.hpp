#pragma once

#include <string>
#include <vector>

#include "tests/support/emulator/device.hpp"
#include "tests/support/sparse_mla.hpp"

namespace ingot::test::emulator {

/// One variant of a sparse MLA decode or prefill family, compiled for the emulator.
struct SparseMlaVariant {
  std::string name;
  int tile_heads = 0, nsplit = 0, pieces = 0, threads = 0;
  std::size_t smem_bytes = 0;
  int rows = 2;  ///< of a telling launch
  KvLayout window_layout, selected_layout;
  bool has_sink = true, inverse_rope = true;
  /// Runs one launch and returns the output [rows, heads, 512]; poisoned first. `exchange` persists
  /// between launches, as on the device; it must come back as it was.
  std::vector<std::uint16_t> (*run)(const SparseMlaVariant& variant, const SparseMlaInputs& inputs,
                                    std::uint64_t seed) = nullptr;
};

std::vector<SparseMlaVariant> sparse_mla_variants();

}  // namespace ingot::test::emulator
