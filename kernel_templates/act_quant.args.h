#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

struct ActQuantArgs {
  const bf16* x;    // [tokens, x_stride] bf16, 16-byte aligned
  fp8_e4m3* codes;  // e4m3: TILED [cols / 128][rows][128] as fp8_linear's xq, else
                    // [tokens, cols]
  float* scale;     // powers of two: TILED [cols / 128, rows], else
                    // [tokens, act_quant_scale_stride(cols)]
  int tokens;
  int cols;      // a multiple of 128
  int x_stride;  // elements between tokens, a multiple of 8
  int rows;      // TILED: rows of codes and scale, at least tokens
};

// Rows of scales are whole 16-byte words, as bulk copies want.
constexpr int act_quant_scale_stride(int cols) {
  return (cols / 128 + 3) / 4 * 4;
}

}  // namespace ingot::kernels
