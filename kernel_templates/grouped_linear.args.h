#pragma once
#include "common/types.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels {

constexpr int GROUPED_LINE = 128;  // bytes of shared memory per token and 64 columns

struct GroupedLinearArgs {
  const bf16* x;           // [tokens, x_stride]: of each token groups * COLS, group after group;
                           // 16-byte aligned
  const fp8_e4m3* weight;  // [rows / 128][COLS / 128][16384] e4m3 tiles, as fp8_linear's
  const ue8m0* scale;      // [rows / 128, COLS / 128]
  bf16* out;               // [tokens, out_stride], `rows` of each token
  void* workspace;         // grouped_linear_workspace_bytes(...) of 0xff before the first launch,
                           // left so; unused when SPLIT_K == 1
  int tokens;              // at least 1
  int rows;                // of all groups, a multiple of group_rows
  int group_rows;          // rows that one group's columns meet, a multiple of 128
  int x_stride;            // elements between tokens, a multiple of 8
  int out_stride;          // elements between tokens, a multiple of 4
};

constexpr i64 grouped_linear_workspace_bytes(int strips, int tokens, int tile_tokens, int split_k) {
  return fp8_linear_workspace_bytes(strips, tokens, tile_tokens, split_k);
}
// Dynamic shared memory: a ring of weight tiles, each with the input of its columns; the sums of
// the second group of warps; the ring's barriers.
constexpr int grouped_linear_sum_bytes(int tile_tokens, int k_groups) {
  return (k_groups - 1) * tile_tokens * FP8_TILE * 4;
}
constexpr int grouped_linear_smem_bytes(int tile_tokens, int stages, int k_groups) {
  return stages * (FP8_TILE_BYTES + tile_tokens * 2 * GROUPED_LINE + 8) +
         grouped_linear_sum_bytes(tile_tokens, k_groups);
}

}  // namespace ingot::kernels
