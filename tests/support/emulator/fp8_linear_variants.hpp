#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ingot::test::emulator {

/// A launch of fp8_linear_sm90: one weight, quantised input, in the layouts of fp8_linear.args.h.
struct Fp8LinearInputs {
  int rows = 0;  ///< of the weight
  int tokens = 0;
  int x_rows = 0;
  int strip_blocks = 1;  ///< blocks that share the strips of 128 rows
  std::vector<std::byte> weight, x;
  std::vector<std::uint8_t> weight_scale;
  std::vector<float> x_scale;
};

/// One variant of fp8_linear_sm90, compiled for the emulator.
struct Fp8LinearVariant {
  std::string name;
  int cols = 0;
  bool one_strip = false;  ///< each block has one: strip_blocks is the number of strips
  bool paired = false;     ///< needs an even number of token tiles
  int tile_tokens = 0;
  /// Runs one launch and returns the output [tokens, rows]; poisoned first. Throws when the
  /// workspace does not come back as it was.
  std::vector<std::uint16_t> (*run)(const Fp8LinearInputs& inputs, std::uint64_t seed) = nullptr;
};

std::vector<Fp8LinearVariant> fp8_linear_variants();

}  // namespace ingot::test::emulator
