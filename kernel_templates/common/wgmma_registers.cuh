#pragma once
// Hopper's warpgroup mma on FP8 with A in registers and B as common/wgmma.cuh has it: D[64 x N]
// (+)= A[64 x 32] * B[N x 32]^T, B in 128-byte rows whose 16-byte chunks are swizzled by row % 8.
// Of A lanes hold the fragment that mma.sync takes for their warp's 16 rows: lane 4g + c of rows g
// and g + 8 columns 4c .. 4c + 3, then of columns 16 more. The registers are read until the mma has
// been waited for. sm_90a only.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "common/wgmma.cuh"

namespace ingot::kernels::wgmma {

// Keeps the compiler from using a register of A for anything else ahead of this place.
template <int COUNT>
__forceinline__ void hold_operand(u32 (&a)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    asm volatile("" : "+r"(a[i])::"memory");
}

// a: of the k-step, from `a[first]` on. accumulate == 0: D is overwritten, not added to.
template <int N>
__forceinline__ void mma_e4m3_registers(float (&d)[N / 8][4], const u32* a, u64 b, int accumulate);

template <>
__forceinline__ void mma_e4m3_registers<16>(float (&d)[2][4], const u32* a, u64 b, int accumulate) {
  WGMMA_FROM_REGISTERS("m64n16k32.f32.e4m3.e4m3", 16, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<24>(float (&d)[3][4], const u32* a, u64 b, int accumulate) {
  WGMMA_FROM_REGISTERS("m64n24k32.f32.e4m3.e4m3", 24, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<32>(float (&d)[4][4], const u32* a, u64 b, int accumulate) {
  WGMMA_FROM_REGISTERS("m64n32k32.f32.e4m3.e4m3", 32, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<40>(float (&d)[5][4], const u32* a, u64 b, int accumulate) {
  WGMMA_FROM_REGISTERS("m64n40k32.f32.e4m3.e4m3", 40, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<48>(float (&d)[6][4], const u32* a, u64 b, int accumulate) {
  WGMMA_FROM_REGISTERS("m64n48k32.f32.e4m3.e4m3", 48, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<56>(float (&d)[7][4], const u32* a, u64 b, int accumulate) {
  WGMMA_FROM_REGISTERS("m64n56k32.f32.e4m3.e4m3", 56, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<64>(float (&d)[8][4], const u32* a, u64 b, int accumulate) {
  WGMMA_FROM_REGISTERS("m64n64k32.f32.e4m3.e4m3", 64, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<80>(float (&d)[10][4], const u32* a, u64 b,
                                            int accumulate) {
  WGMMA_FROM_REGISTERS("m64n80k32.f32.e4m3.e4m3", 80, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<96>(float (&d)[12][4], const u32* a, u64 b,
                                            int accumulate) {
  WGMMA_FROM_REGISTERS("m64n96k32.f32.e4m3.e4m3", 96, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<112>(float (&d)[14][4], const u32* a, u64 b,
                                             int accumulate) {
  WGMMA_FROM_REGISTERS("m64n112k32.f32.e4m3.e4m3", 112, "1, 1");
}

template <>
__forceinline__ void mma_e4m3_registers<128>(float (&d)[16][4], const u32* a, u64 b,
                                             int accumulate) {
  WGMMA_FROM_REGISTERS("m64n128k32.f32.e4m3.e4m3", 128, "1, 1");
}

}  // namespace ingot::kernels::wgmma
