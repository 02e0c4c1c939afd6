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

// A partial sum of each warp, dynamic.
constexpr int rms_norm_smem_bytes(int rows_per_block, int threads_per_row) {
  return rows_per_block * (threads_per_row / 32) * 4;
}

}  // namespace ingot::kernels
