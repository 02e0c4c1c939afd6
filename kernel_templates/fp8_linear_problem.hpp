#pragma once

#include <algorithm>
#include <array>

#include "kernel_templates/fp8_linear.args.h"

namespace ingot::kernels {

/// What the fp8_linear families are asked for: up to three weights that share the input, one
/// launch.
struct Fp8LinearProblem {
  std::array<int, 3>
      rows{};           ///< output columns of each weight, multiples of 128; 0: no such weight
  int cols = 4096;      ///< K, a multiple of 128
  int tokens = 1;       ///< the batch bucket
  bool x_bf16 = false;  ///< the input arrives as bf16; otherwise as act_quant's tiles

  bool operator==(const Fp8LinearProblem&) const = default;

  int strips() const { return (rows[0] + rows[1] + rows[2]) / FP8_TILE; }
  int k_tiles() const { return cols / FP8_TILE; }
  int token_tiles(int tile_tokens) const { return (tokens + tile_tokens - 1) / tile_tokens; }
  /// K tiles of the longest split.
  int split_k_tiles(int split_k) const { return (k_tiles() + split_k - 1) / split_k; }
};

/// Blocks (or clusters, `groups_at_once` of which fit the card) that share the units of a launch:
/// no more than finish in as many rounds, so that the work is even. When a block keeps its input,
/// the stride must keep its split and token tile the same.
/// @param kinds  units that differ in split or token tile
inline int fp8_linear_blocks(int units, int groups_at_once, int kinds, bool x_resident) {
  const int step = x_resident ? kinds : 1;
  const int most = std::max(groups_at_once / step * step, step);
  const int rounds = (units + most - 1) / most;
  const int even = (units + rounds - 1) / rounds;
  return rounds == 1 ? units : (even + step - 1) / step * step;
}

}  // namespace ingot::kernels
