#pragma once

#include <algorithm>
#include <array>

#include "kernel_templates/fp8_linear.args.h"
#include "kernel_templates/linear_grid.hpp"
#include "runtime/cuda/launch.hpp"

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

  LinearWork work() const { return {.strips = strips(), .k_tiles = k_tiles(), .tokens = tokens}; }
  int strips() const { return (rows[0] + rows[1] + rows[2]) / FP8_TILE; }
  int k_tiles() const { return cols / FP8_TILE; }
  int token_tiles(int tile_tokens) const { return (tokens + tile_tokens - 1) / tile_tokens; }
  /// K tiles of the longest split.
  int split_k_tiles(int split_k) const { return (k_tiles() + split_k - 1) / split_k; }

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, cols, tokens, x_bf16] = self;
    visit("rows", rows);
    visit("cols", cols);
    visit("tokens", tokens);
    visit("x_bf16", x_bf16);
  }
};

/// Grid of a launch: (splits of K, token tiles, blocks that share the strips), no more of the last
/// than finish in as many rounds, so that the work is even.
/// @param at_once  blocks that the card runs at the same time
inline cu::Dim3 fp8_linear_grid(const Fp8LinearProblem& problem, int tile_tokens, int split_k,
                                int at_once) {
  const int across = split_k * problem.token_tiles(tile_tokens);
  const int most = std::max(at_once / across, 1);
  const int rounds = (problem.strips() + most - 1) / most;
  return {static_cast<unsigned>(split_k), static_cast<unsigned>(problem.token_tiles(tile_tokens)),
          static_cast<unsigned>((problem.strips() + rounds - 1) / rounds)};
}
/// Blocks of a grid.
inline int block_count(const cu::Dim3& grid) {
  return static_cast<int>(grid.x * grid.y * grid.z);
}
/// Weight tiles that one block of such a grid goes through.
inline int fp8_linear_block_tiles(const Fp8LinearProblem& problem, int split_k,
                                  const cu::Dim3& grid) {
  const int blocks = static_cast<int>(grid.z);
  return (problem.strips() + blocks - 1) / blocks * problem.split_k_tiles(split_k);
}

}  // namespace ingot::kernels
