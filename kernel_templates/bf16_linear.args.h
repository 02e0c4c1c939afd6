#pragma once
#include "common/types.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels {

constexpr int BF16_TILE_ROWS = 128;
constexpr int BF16_TILE_COLS = 64;  // a tile's line is 128 bytes, as that of an FP8 tile
constexpr int BF16_TILE_BYTES = BF16_TILE_ROWS * BF16_TILE_COLS * 2;
constexpr int BF16_SEGMENTS = 5;

// One weight matrix; up to five that share the input make one launch.
struct Bf16LinearSegment {
  const bf16* weight;  // [rows, COLS] as in the checkpoint, 16-byte aligned
  void* out;           // [tokens, out_stride] fp32 or bf16; `rows` of each token are written
  int rows;            // 0: no segment
  int out_stride;      // elements between two tokens' outputs
  int out_bf16;        // round to bf16; else fp32
};

struct Bf16LinearArgs {
  Bf16LinearSegment segments[BF16_SEGMENTS];  // the used ones first
  const bf16* x;                              // [tokens, x_stride], 16-byte aligned
  void* workspace;  // bf16_linear_workspace_bytes(...) of 0xff before the first launch, left so;
                    // unused when SPLIT_K == 1
  int tokens;       // at least 1
  int x_stride;     // elements between tokens, a multiple of 8
};

constexpr int bf16_linear_strips(int rows) {
  return (rows + BF16_TILE_ROWS - 1) / BF16_TILE_ROWS;
}
// Where the counters of LAST_SUMS begin, behind the partial sums: 8 words for each tile of tokens
// and strip.
constexpr i64 bf16_linear_counters_at(int strips, int tokens, int tile_tokens, int split_k) {
  return fp8_linear_workspace_bytes(strips, tokens, tile_tokens, split_k);
}
constexpr i64 bf16_linear_workspace_bytes(int strips, int tokens, int tile_tokens, int split_k,
                                          bool last_sums) {
  const i64 counters =
      last_sums && split_k > 1 ? 32LL * strips * ((tokens + tile_tokens - 1) / tile_tokens) : 0;
  return bf16_linear_counters_at(strips, tokens, tile_tokens, split_k) + counters;
}
// Dynamic shared memory: a ring of weight tiles, and the input's tiles: `resident_k_tiles` of them
// where the block keeps its whole input, else (0) one per stage.
constexpr int bf16_linear_smem_bytes(int tile_tokens, int stages, int resident_k_tiles) {
  return stages * BF16_TILE_BYTES +
         (resident_k_tiles > 0 ? resident_k_tiles : stages) * tile_tokens * BF16_TILE_COLS * 2;
}

}  // namespace ingot::kernels
