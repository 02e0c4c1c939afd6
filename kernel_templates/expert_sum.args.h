#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

struct ExpertSumArgs {
  const float* routed;  // [tokens, hidden] fp32, 16-byte aligned: moe_decode's out
  const bf16* shared;   // [tokens, hidden] bf16, 16-byte aligned: the shared expert's output
  bf16* out;            // [tokens, hidden] bf16, 16-byte aligned; may be `shared`
  int tokens;           // 0 is allowed
  int hidden;           // channels, a multiple of 8
};

}  // namespace ingot::kernels
