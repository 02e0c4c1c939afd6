#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

struct RmsNormArgs {
  const bf16* input;   // [rows, HIDDEN]
  const bf16* weight;  // [HIDDEN]
  bf16* output;        // [rows, HIDDEN]; may be `input`
  int rows;            // 0 is allowed
  float eps;
};

}  // namespace ingot::kernels
