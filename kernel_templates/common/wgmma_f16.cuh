#pragma once
// Hopper's warpgroup mma on f16 with A in registers: D[64 x N] (+)= A[64 x 16] * B[N x 16]^T.
// A warpgroup's warp w, lane 4g + c holds of A the fragment that mma.sync takes for rows 16w …
// 16w + 15, and of D rows 16w + g and 16w + g + 8, columns 8j + 2c and + 1:
// d[4j …] = {(g, 2c), (g, 2c + 1), (g + 8, 2c), (g + 8, 2c + 1)}. sm_90a only.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "common/types.cuh"
#include "common/wgmma_operands.cuh"

namespace ingot::kernels::wgmma_f16 {

// B without swizzle: 8 x 8 blocks (8 columns of D, 8 of the 16 k; a column's 8 k are 16 bytes),
// `k_stride` bytes to the block of the next 8 k, 128 bytes to that of the next 8 columns.
__forceinline__ u64 descriptor(u32 address, u32 k_stride) {
  constexpr u64 COLUMN_STRIDE = 128;
  return ((address & 0x3ffffu) >> 4) | (static_cast<u64>(k_stride >> 4) << 16) |
         (COLUMN_STRIDE >> 4) << 32;
}
// A descriptor `bytes` further on.
__forceinline__ u64 advance(u64 descriptor, u32 bytes) {
  return descriptor + (bytes >> 4);
}

// Before the first mma that uses registers which other instructions have written.
__forceinline__ void fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__forceinline__ void commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most PENDING committed groups are unfinished.
template <int PENDING>
__forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from reading accumulators ahead of this place, which follows their wait.
template <int COUNT>
__forceinline__ void hold(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    asm volatile("" : "+f"(d[i])::"memory");
}

// accumulate == 0: D is overwritten, not added to.
template <int N>
__forceinline__ void multiply(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate);

template <>
__forceinline__ void multiply<8>(float (&sums)[4], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[1][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n8k16.f32.f16.f16", 8, "1, 1, 0");
}

template <>
__forceinline__ void multiply<16>(float (&sums)[8], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[2][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n16k16.f32.f16.f16", 16, "1, 1, 0");
}

template <>
__forceinline__ void multiply<32>(float (&sums)[16], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[4][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n32k16.f32.f16.f16", 32, "1, 1, 0");
}

template <>
__forceinline__ void multiply<64>(float (&sums)[32], const u32 (&a)[4], u64 b, int accumulate) {
  auto& d = reinterpret_cast<float(&)[8][4]>(sums);
  WGMMA_FROM_REGISTERS("m64n64k16.f32.f16.f16", 64, "1, 1, 0");
}

}  // namespace ingot::kernels::wgmma_f16
