#pragma once
// Hopper's warpgroup mma on f16 with A in registers: D[64 x N] (+)= A[64 x 16] * B[N x 16]^T.
// A warpgroup's warp w, lane 4g + c holds of A the fragment that mma.sync takes for rows 16w …
// 16w + 15, and of D rows 16w + g and 16w + g + 8, columns 8j + 2c and + 1:
// d[4j …] = {(g, 2c), (g, 2c + 1), (g + 8, 2c), (g + 8, 2c + 1)}. sm_90a only.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "common/types.cuh"

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
__forceinline__ void multiply<8>(float (&d)[4], const u32 (&a)[4], u64 b, int accumulate) {
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {"
      "%0, %1, %2, %3"
      "}, {%4, %5, %6, %7}, %8, p, 1, 1, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

template <>
__forceinline__ void multiply<16>(float (&d)[8], const u32 (&a)[4], u64 b, int accumulate) {
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7"
      "}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

template <>
__forceinline__ void multiply<32>(float (&d)[16], const u32 (&a)[4], u64 b, int accumulate) {
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

template <>
__forceinline__ void multiply<64>(float (&d)[32], const u32 (&a)[4], u64 b, int accumulate) {
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

}  // namespace ingot::kernels::wgmma_f16
