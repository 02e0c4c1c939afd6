#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int COMBINE_DIMS = 512, COMBINE_ROPE_DIMS = 64;

struct SplitKvCombineArgs {
  const void* partial;       // [batch, NSPLIT, heads, 512] fp32 or bf16: softmax-weighted values of
                             // one split, normalised within it; 16-byte aligned; not read where
                             // lse is -inf
  const float* lse;          // [batch, NSPLIT, heads] natural log of the split's sum of
                             // exp(score); -inf = empty split
  const float* sink;         // [heads] logit that only enters the denominator; read when HAS_SINK
  const int* positions;      // [batch]; read when INVERSE_ROPE
  const float* frequencies;  // [32] of the layer's rope table; read when INVERSE_ROPE
  bf16* out;                 // [batch, heads, 512] bf16, 8-byte aligned
  int batch;
  int heads;  // of this rank, a multiple of HEADS
};

}  // namespace ingot::kernels
