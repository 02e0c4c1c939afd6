#pragma once
#include "common/types.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels {

// Dynamic shared memory: a ring of weight tiles, with the matching input tiles unless the block
// keeps its whole input (`resident_k_tiles` K tiles of it, else 0), and the barriers.
constexpr int fp8_linear_sm90_smem_bytes(int tile_tokens, int stages, int resident_k_tiles) {
  const int x_tiles = resident_k_tiles > 0 ? resident_k_tiles : stages;
  return stages * FP8_TILE_BYTES + x_tiles * tile_tokens * (FP8_TILE + 4) + (2 * stages + 1) * 8;
}

}  // namespace ingot::kernels
