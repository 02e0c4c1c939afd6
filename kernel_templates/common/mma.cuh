#pragma once
// Warp-level tensor core instructions. Lane 4g + c of D (and C): rows g and g + 8, columns 2c and
// 2c + 1: d = {(g, 2c), (g, 2c + 1), (g + 8, 2c), (g + 8, 2c + 1)}.
#include "common/types.cuh"

namespace ingot::kernels::mma {

// D += A[16 x 16] * B[16 x 8]. a: rows g, g + 8 of columns 2c, 2c + 1, then of columns 8 more;
// b: rows 2c, 2c + 1 of column g, then rows 8 more. sm_80.
__forceinline__ void f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same on bf16.
__forceinline__ void bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// D += A[16 x 32] * B[32 x 8] on e4m3. a: rows g, g + 8 of columns 4c .. 4c + 3, then of columns
// 16 more; b: rows 4c .. 4c + 3 of column g, then rows 16 more. sm_89; on sm_90 ptxas emulates it
// with conversions and f16, so no sm_90 variant should ask for it.
__forceinline__ void e4m3(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// D += (A * scale_a) * (B * scale_b), A[16 x 32] and B[32 x 8] on e4m3 as above, with a ue8m0 scale
// per row of A and per column of B. Lane 4g gives in the low byte of scale_a the scale of row g,
// lane 4g + 1 that of row g + 8; lane 4g gives in scale_b that of column g. sm_120a.
// Source: PTX ISA, "Block scaling for mma.sync", scale_vec::1X.
__forceinline__ void e4m3_block_scaled(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                       u32 b1, u32 scale_a, u32 scale_b) {
  constexpr u16 FIRST = 0;  // byte of the register, and lanes of a quad, that hold the scales
  asm volatile(
      "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32"
      ".ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%12, %12},"
      " {%11}, {%12, %12};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(scale_a), "r"(scale_b),
        "h"(FIRST));
}

}  // namespace ingot::kernels::mma
