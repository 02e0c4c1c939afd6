#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel_templates/fp8_linear_problem.hpp"

/// Made-up weights and inputs of an FP8 linear on the host, and what a correct kernel makes of
/// them.
namespace ingot::bench {

/// Weights of all segments, row after row: [rows, cols] e4m3, and [rows / 128, cols / 128] ue8m0.
struct LinearWeights {
  int rows = 0;
  int cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;

  /// The codes in the tiles that kernels read.
  std::vector<std::byte> tiles() const;
};

/// Random codes but NaN, scales from 2^-10 to 2^-6.
LinearWeights random_weights(int rows, int cols, std::uint64_t seed);

/// One batch of inputs, as bf16 and quantised in the layouts of act_quant.
struct LinearInput {
  int tokens = 0;
  int cols = 0;
  int rows = 0;                            ///< tokens rounded up to 4
  std::vector<std::uint16_t> x;            ///< [tokens, cols] bf16
  std::vector<std::uint8_t> codes;         ///< [tokens, cols] e4m3
  std::vector<float> scales;               ///< [tokens, cols / 128]
  std::vector<std::byte> tiles() const;    ///< [cols / 128][rows][128], swizzled
  std::vector<float> tile_scales() const;  ///< [cols / 128, rows]
};

/// About normal, with another magnitude in each group of 128; a group of zeros and one below the
/// quantiser's floor are among them.
LinearInput random_input(int tokens, int cols, std::uint64_t seed);
/// Quantises given bf16 values, [tokens, cols].
LinearInput quantized_input(std::vector<std::uint16_t> x, int tokens, int cols);

/// y = x W^T as the model defines it: exact products, fp32 sums of 128 columns, scaled and added in
/// fp32. [tokens, rows], on all cores.
std::vector<float> reference_linear(const LinearWeights& weights, const LinearInput& input);

struct Comparison {
  double relative_error = 0;  ///< Frobenius norm of the difference over that of the reference
  double worst = 0;           ///< largest error in units of what is allowed for its element
  long long unwritten = 0;    ///< elements that still hold the poison
  long long wrong_kind = 0;   ///< NaN or infinity out of place

  bool good() const { return worst <= 1 && unwritten == 0 && wrong_kind == 0; }
};

constexpr std::uint16_t kPoison = 0xffff;  ///< a NaN that no kernel writes

/// Compares bf16 results with the reference. Allowed: half a unit of bf16 (2^-8 relative) and, for
/// sums in which terms cancel, 2^-8 of a row's root mean square.
Comparison compare(const std::vector<std::uint16_t>& got, const std::vector<float>& expected,
                   int columns);

}  // namespace ingot::bench
