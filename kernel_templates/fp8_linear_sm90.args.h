#pragma once
#include "common/types.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels {

// With so many tokens, tokens are the M of the mma and weight rows its N, otherwise the reverse.
constexpr int FP8_LINEAR_SM90_TOKENS_AS_M = 64;

// Where a cluster's blocks leave partial sums for each other: each of 8 warps owns of SPLIT_K
// neighbouring units one, and gets one from each sibling. A unit is 512 bytes, or 1024 where it is
// a pair of fragments (tokens as M).
constexpr int fp8_linear_sm90_exchange_bytes(int tile_tokens, int split_k) {
  const bool pairs = tile_tokens >= FP8_LINEAR_SM90_TOKENS_AS_M;
  const int units = pairs ? tile_tokens / 16 : tile_tokens / 8;
  return 8 * ((units + split_k - 1) / split_k) * (split_k - 1) * (pairs ? 1024 : 512);
}

// Where the math warps stage a strip's output, 16 tokens each, for bulk stores: only of many tokens
// and unsplit. Rows are padded so that the fragments of four tokens lie in different banks.
constexpr int FP8_LINEAR_SM90_STORE_PAD = 32;
constexpr int fp8_linear_sm90_store_row(int tile_tokens) {
  return tile_tokens * 2 + FP8_LINEAR_SM90_STORE_PAD;  // 128 outputs with 128 tokens, 64 with 64
}
constexpr int fp8_linear_sm90_store_bytes(int tile_tokens, int split_k) {
  return tile_tokens >= FP8_LINEAR_SM90_TOKENS_AS_M && split_k == 1
             ? 8 * 16 * fp8_linear_sm90_store_row(tile_tokens)
             : 0;
}

// Dynamic shared memory: a ring of weight tiles, with the matching input tiles unless the block
// keeps its whole input (`resident_k_tiles` K tiles of it, else 0), the exchange of a cluster or
// the staged output, and the barriers.
constexpr int fp8_linear_sm90_smem_bytes(int tile_tokens, int stages, int resident_k_tiles,
                                         int split_k, bool clustered) {
  const int x_tiles = resident_k_tiles > 0 ? resident_k_tiles : stages;
  return stages * FP8_TILE_BYTES + x_tiles * tile_tokens * (FP8_TILE + 4) +
         (clustered ? fp8_linear_sm90_exchange_bytes(tile_tokens, split_k) : 0) +
         fp8_linear_sm90_store_bytes(tile_tokens, split_k) +
         (2 * stages + resident_k_tiles + 8) * 8;
}

}  // namespace ingot::kernels
