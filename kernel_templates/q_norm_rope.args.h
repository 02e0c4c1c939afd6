#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

constexpr int Q_ROPE_DIMS = 64;
constexpr unsigned kQNormRopeSmemBytes = Q_ROPE_DIMS * 4;  // cosine and sine of each pair

struct QNormRopeArgs {
  bf16* q;                   // [tokens, heads, DIMS], a token every q_stride elements; in place
  const float* frequencies;  // [32] of the layer's rope table
  const int* positions;      // [tokens]
  int heads;                 // of the rank
  int tokens;                // 0 is allowed
  int q_stride;              // elements between tokens, a multiple of 8
  float epsilon;
};

}  // namespace ingot::kernels
