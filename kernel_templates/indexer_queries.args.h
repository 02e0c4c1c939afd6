#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

struct IndexerQueriesArgs {
  const bf16* q;             // [rows, q_stride] bf16: HEADS queries of 128; 8-byte aligned
  const bf16* projected;     // [rows, HEADS] bf16: weights_proj * x
  const float* frequencies;  // [32] of the layer's rope table
  const int* positions;      // [rows]
  u8* codes;                 // [rows, HEADS, 64] e2m1, as indexer_scores takes them; 2-byte aligned
  u8* scales;                // [rows, HEADS, 4] ue8m0
  bf16* weights;             // [rows, HEADS] of the heads: bf16(projected * weight_scale)
  i64 q_stride;              // elements between rows, a multiple of 4
  float weight_scale;        // 128^-0.5 * (all index heads)^-0.5, rounded to fp32 once
};

}  // namespace ingot::kernels
