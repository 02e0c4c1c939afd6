#pragma once
// Hopper's warpgroup mma on bf16 with A in registers and B as common/wgmma.cuh has it: D[64 x N]
// (+)= A[64 x 16] * B[N x 16]^T, B in 128-byte rows of 64 columns whose 16-byte chunks are swizzled
// by row % 8; a k-step of 16 columns further on is kStep32 more. Of A lanes hold the fragment that
// mma.sync takes for their warp's 16 rows: lane 4g + c of rows g and g + 8 columns 2c and 2c + 1,
// then of columns 8 more. The registers are read until the mma has been waited for. sm_90a only.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "common/wgmma.cuh"

namespace ingot::kernels::wgmma {

// Two neighbouring bytes of shared memory, 2-byte aligned.
__forceinline__ u32 load_two_codes(u32 from) {
  u16 codes;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(codes) : "r"(from) : "memory");
  return codes;
}

// Two e4m3 codes (common/fp8_bf16.cuh) as bf16, exactly, times a power of two: `factor` is 2^120
// times that as bf16, in both halves.
__forceinline__ u32 codes_to_bf16(u32 codes, u32 factor) {
  const u32 spread = __byte_perm(codes, 0, 0x4140);
  const u32 bits = ((spread & 0x00800080u) << 8) | ((spread & 0x007f007fu) << 4);
  u32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(bits), "r"(factor), "r"(0x80008000u));
  return result;
}

// Keeps the compiler from moving uses of accumulators and operands across this place, which follows
// the wait for their products.
template <int COUNT>
__forceinline__ void hold_all(float (&d)[COUNT][4]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
template <int COUNT>
__forceinline__ void hold_all(u32 (&a)[COUNT][4]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

// accumulate == 0: D is overwritten, not added to.
template <int N>
__forceinline__ void mma_bf16_registers(float (&d)[N / 8][4], const u32 (&a)[4], u64 b,
                                        int accumulate);

template <>
__forceinline__ void mma_bf16_registers<64>(float (&d)[8][4], const u32 (&a)[4], u64 b,
                                            int accumulate) {
  WGMMA_FROM_REGISTERS("m64n64k16.f32.bf16.bf16", 64, "1, 1, 0");
}

template <>
__forceinline__ void mma_bf16_registers<128>(float (&d)[16][4], const u32 (&a)[4], u64 b,
                                             int accumulate) {
  WGMMA_FROM_REGISTERS("m64n128k16.f32.bf16.bf16", 128, "1, 1, 0");
}

template <>
__forceinline__ void mma_bf16_registers<256>(float (&d)[32][4], const u32 (&a)[4], u64 b,
                                             int accumulate) {
  WGMMA_FROM_REGISTERS("m64n256k16.f32.bf16.bf16", 256, "1, 1, 0");
}

}  // namespace ingot::kernels::wgmma
