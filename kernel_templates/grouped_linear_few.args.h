#pragma once
#include "grouped_linear.args.h"

namespace ingot::kernels {

constexpr int GROUPED_FEW_LINES = 16;                            // weight rows of a warp
constexpr int GROUPED_FEW_PIECE = GROUPED_FEW_LINES * FP8_TILE;  // bytes of them in a tile

// Dynamic shared memory: each warp's ring of pieces and its barriers, the input as f16, the
// inverses of its factors.
constexpr int grouped_linear_few_smem_bytes(int cols, int tokens, int stages, int warps) {
  return warps * stages * (GROUPED_FEW_PIECE + 8) + tokens * (2 * cols + cols / FP8_TILE * 4);
}

}  // namespace ingot::kernels
