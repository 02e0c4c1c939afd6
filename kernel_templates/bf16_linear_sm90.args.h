#pragma once
#include "bf16_linear.args.h"

namespace ingot::kernels {

// Dynamic shared memory: a ring of weight tiles and input tiles, and for each stage a barrier that
// says it is full and one that says it is free.
constexpr int bf16_linear_sm90_smem_bytes(int tile_tokens, int stages) {
  return stages * (BF16_TILE_BYTES + tile_tokens * BF16_TILE_COLS * 2) + 2 * stages * 8;
}

}  // namespace ingot::kernels
