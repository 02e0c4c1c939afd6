#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

struct SwigluQuantArgs {
  const bf16* gate;  // [tokens, stride], inter of each row are read; 16-byte aligned
  const bf16* up;    // likewise
  fp8_e4m3* codes;   // [inter / 128][rows][128] e4m3, chunks swizzled: fp8_linear's xq
  float* scale;      // [inter / 128, rows] powers of two: its x_scale
  float limit;       // clamp of gate (above) and up (both sides); infinity for none
  int tokens;        // 0 is allowed; tokens * inter / 128 fits an int
  int inter;         // channels of the rank, a multiple of 128
  int stride;        // elements between tokens of gate and of up, a multiple of 8
  int rows;          // of codes and scale, at least tokens
};

}  // namespace ingot::kernels
