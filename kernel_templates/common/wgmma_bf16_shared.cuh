#pragma once
// Hopper's warpgroup mma on bf16 with both operands in shared memory as common/wgmma.cuh has them:
// D[64 x N] (+)= A[64 x 16] * B[N x 16]^T, in 128-byte rows of 64 columns whose 16-byte chunks are
// swizzled by row % 8; a k-step of 16 columns further on is kStep32 more. sm_90a only.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "common/wgmma_bf16.cuh"

namespace ingot::kernels::wgmma {

// accumulate == 0: D is overwritten, not added to.
template <int N>
__forceinline__ void mma_bf16(float (&d)[N / 8][4], u64 a, u64 b, int accumulate);

template <>
__forceinline__ void mma_bf16<64>(float (&d)[8][4], u64 a, u64 b, int accumulate) {
  WGMMA_FROM_SHARED("m64n64k16.f32.bf16.bf16", 64, "1, 1, 0, 0");
}

template <>
__forceinline__ void mma_bf16<128>(float (&d)[16][4], u64 a, u64 b, int accumulate) {
  WGMMA_FROM_SHARED("m64n128k16.f32.bf16.bf16", 128, "1, 1, 0, 0");
}

}  // namespace ingot::kernels::wgmma
