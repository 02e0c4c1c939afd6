#pragma once
// Hopper's warpgroup mma on FP8: D[64 x N] (+)= A[64 x 32] * B[N x 32]^T, both operands in shared
// memory, K contiguous, in 128-byte rows whose 16-byte chunks are swizzled by row % 8.
// A warpgroup's warp w, lane 4g + c holds rows 16w + g and 16w + g + 8, columns 8j + 2c and + 1:
// d[j] = {(g, 2c), (g, 2c + 1), (g + 8, 2c), (g + 8, 2c + 1)}. sm_90a only.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "common/types.cuh"
#include "common/wgmma_operands.cuh"

namespace ingot::kernels::wgmma {

// Matrix descriptors of tiles of 128-byte rows, 8-row groups 1024 bytes apart, 128-byte swizzle,
// differ in their low word alone: no 64-bit arithmetic stands between two mmas.
// `address` is a multiple of 1024. A k-step of 32 bytes further on is kStep32 more.
constexpr u32 kStep32 = 32 >> 4;
__forceinline__ u32 tile_place(u32 address) {
  constexpr u32 kUnusedStride = 1u << 16;
  return kUnusedStride | (address & 0x3ffffu) >> 4;  // above: the block's rank in the cluster
}
__forceinline__ u64 tile_descriptor(u32 place) {
  constexpr u64 kSwizzle128 = 1ull << 62, kGroupStride = (1024ull >> 4) << 32;
  return kSwizzle128 | kGroupStride | place;
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

// Keeps the compiler from moving uses of an mma's register across this place.
__forceinline__ void hold(float& value) {
  asm volatile("" : "+f"(value)::"memory");
}

__forceinline__ void hold(u32& value) {
  asm volatile("" : "+r"(value)::"memory");
}
// A register that an mma will overwrite: it holds nothing yet, and takes no instruction.
__forceinline__ void fresh(float& value) {
  asm volatile("" : "=f"(value));
}

// accumulate == 0: D is overwritten, not added to.
template <int N>
__forceinline__ void mma_e4m3(float (&d)[N / 8][4], u64 a, u64 b, int accumulate);

template <>
__forceinline__ void mma_e4m3<8>(float (&d)[1][4], u64 a, u64 b, int accumulate) {
  WGMMA_FROM_SHARED("m64n8k32.f32.e4m3.e4m3", 8, "1, 1");
}

template <>
__forceinline__ void mma_e4m3<16>(float (&d)[2][4], u64 a, u64 b, int accumulate) {
  WGMMA_FROM_SHARED("m64n16k32.f32.e4m3.e4m3", 16, "1, 1");
}

template <>
__forceinline__ void mma_e4m3<32>(float (&d)[4][4], u64 a, u64 b, int accumulate) {
  WGMMA_FROM_SHARED("m64n32k32.f32.e4m3.e4m3", 32, "1, 1");
}

template <>
__forceinline__ void mma_e4m3<64>(float (&d)[8][4], u64 a, u64 b, int accumulate) {
  WGMMA_FROM_SHARED("m64n64k32.f32.e4m3.e4m3", 64, "1, 1");
}

template <>
__forceinline__ void mma_e4m3<128>(float (&d)[16][4], u64 a, u64 b, int accumulate) {
  WGMMA_FROM_SHARED("m64n128k32.f32.e4m3.e4m3", 128, "1, 1");
}

}  // namespace ingot::kernels::wgmma
