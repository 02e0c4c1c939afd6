#pragma once
// Arguments of fp8_linear and fp8_linear_sm90, and the layouts that both read. Compiled by the host
// compiler and by NVRTC.
#include "common/types.cuh"

namespace ingot::kernels {

// Weights lie as tiles of 128 rows x 128 columns, [rows / 128][cols / 128][16384 bytes]: one tile
// has one scale, is one copy, and what one block reads is contiguous.
// Inside a tile, 128-byte line r holds one weight row, its 16-byte chunk k at position k ^ (r % 8)
// (tensor cores read it without bank conflicts). Lines are permuted within 16 so that the lane
// which holds lines 2c, 2c + 1, 8 + 2c, 9 + 2c of an mma result holds rows 4c .. 4c + 3.
constexpr int FP8_TILE = 128;
constexpr int FP8_TILE_BYTES = FP8_TILE * FP8_TILE;

// Weight row (within its tile) that lies in line `line`.
constexpr int fp8_tile_row(int line) {
  return line / 16 * 16 + line % 8 / 2 * 4 + line / 8 % 2 * 2 + line % 2;
}
// Byte offset, within a 128-byte line, of column `column` (both within their tile).
constexpr int fp8_tile_offset(int line, int column) {
  return line * FP8_TILE + ((column / 16) ^ (line % 8)) * 16 + column % 16;
}

// One weight matrix; up to three that share the input make one launch.
struct Fp8LinearSegment {
  const fp8_e4m3* weight;  // [rows / 128][cols / 128][16384] e4m3 tiles
  const ue8m0* scale;      // [rows / 128, cols / 128] ue8m0
  bf16* out;               // [tokens, out_stride] bf16, 16-byte aligned; rows of it are written
  int rows;                // output columns of this weight, a multiple of 128; 0: no segment
  int out_stride;          // elements between two tokens' outputs, a multiple of 8
};

struct Fp8LinearArgs {
  Fp8LinearSegment segments[3];  // the used ones first
  const bf16* x;                 // [tokens, cols] bf16, 16-byte aligned; read when QUANTIZE
  const fp8_e4m3* xq;            // [cols / 128][x_rows][128] e4m3, chunks swizzled as above with
                                 // the token as the line; read when not QUANTIZE
  const float* x_scale;          // [cols / 128, x_rows] fp32 powers of two; read when not QUANTIZE
  void* workspace;               // fp8_linear_workspace_bytes(...) of 0xff before the first
                                 // launch, left so; unused when SPLIT_K == 1 or CLUSTERED
  int tokens;                    // at least 1
  int x_rows;                    // rows of xq and x_scale, a multiple of 4, at least tokens
};

// @param strips  128-row strips of all segments together
constexpr i64 fp8_linear_workspace_bytes(int strips, int tokens, int tile_tokens, int split_k) {
  return split_k == 1 ? 0
                      : 4LL * FP8_TILE * tile_tokens * split_k * strips *
                            ((tokens + tile_tokens - 1) / tile_tokens);
}

// First K tile of a split; split == split_k gives the end.
constexpr int fp8_linear_split_begin(int k_tiles, int split_k, int split) {
  const int base = k_tiles / split_k, rest = k_tiles % split_k;
  return split * base + (split < rest ? split : rest);
}

// Dynamic shared memory of fp8_linear: a ring of weight tiles, and the input's tiles and scales:
// `resident_k_tiles` of them where the block keeps its whole input, else (0) one per stage.
constexpr int fp8_linear_smem_bytes(int tile_tokens, int stages, int resident_k_tiles) {
  return stages * FP8_TILE_BYTES +
         (resident_k_tiles > 0 ? resident_k_tiles : stages) * tile_tokens * (FP8_TILE + 4);
}

}  // namespace ingot::kernels
