#pragma once
#include "grouped_linear.args.h"

namespace ingot::kernels {

// Dynamic shared memory: a ring of weight tiles, one of input tiles of 64 columns, and for each
// stage of both a barrier that says it is full and one that says it is free.
constexpr int grouped_linear_sm90_smem_bytes(int tile_tokens, int w_stages, int x_stages) {
  return w_stages * FP8_TILE_BYTES + x_stages * tile_tokens * GROUPED_LINE +
         2 * (w_stages + x_stages) * 8;
}

}  // namespace ingot::kernels
