#pragma once
// Hopper's warpgroup mma on e4m3 with A in registers: D[64 x N] (+)= A[64 x 32] * B[N x 32]^T.
// Lanes hold of A the fragment that mma.sync takes for their warp's 16 rows: lane 4g + c of rows g
// and g + 8 columns 4c .. 4c + 3, then of columns 16 more. D, descriptors (B without swizzle: a
// column's 16 k are 16 bytes), fence, commit, wait and hold are those of common/wgmma_f16.cuh. The
// tensor cores keep about 14 bits of a running sum. sm_90a only. Source: PTX ISA, "Asynchronous
// Warpgroup Level Matrix Instructions".
#include "common/wgmma_f16.cuh"

namespace ingot::kernels::wgmma_e4m3 {

// accumulate == 0: D is overwritten, not added to.
template <int N>
__forceinline__ void multiply(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate);

template <>
__forceinline__ void multiply<8>(float (&sums)[4], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[1][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n8k32.f32.e4m3.e4m3", 8, "1, 1");
}

template <>
__forceinline__ void multiply<16>(float (&sums)[8], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[2][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n16k32.f32.e4m3.e4m3", 16, "1, 1");
}

template <>
__forceinline__ void multiply<32>(float (&sums)[16], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[4][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n32k32.f32.e4m3.e4m3", 32, "1, 1");
}

template <>
__forceinline__ void multiply<64>(float (&sums)[32], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[8][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n64k32.f32.e4m3.e4m3", 64, "1, 1");
}

}  // namespace ingot::kernels::wgmma_e4m3
