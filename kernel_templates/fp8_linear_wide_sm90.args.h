#pragma once
#include "fp8_linear.args.h"

namespace ingot::kernels {

// A tile of the output: tokens, and weight rows, which are two neighbouring strips of 128.
constexpr int FP8_LINEAR_WIDE_TOKENS = 128, FP8_LINEAR_WIDE_STRIPS = 2;

// Where the math warps turn a strip's output into whole lines: of each warp 16 tokens.
constexpr int FP8_LINEAR_WIDE_STORE_BYTES = FP8_LINEAR_WIDE_TOKENS * FP8_TILE * 2;

// Dynamic shared memory: a ring of steps, each a weight tile per strip and an input tile with its
// scales, the output, and for each stage a barrier that says it is full and one that says it is
// free.
constexpr int fp8_linear_wide_sm90_smem_bytes(int stages) {
  return stages *
             ((FP8_LINEAR_WIDE_STRIPS + 1) * FP8_TILE_BYTES + FP8_LINEAR_WIDE_TOKENS * 4 + 16) +
         FP8_LINEAR_WIDE_STORE_BYTES;
}

}  // namespace ingot::kernels
