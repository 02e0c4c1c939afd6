#pragma once
// A barrier of all blocks of a grid, which must all be resident at once. In two halves, so that
// blocks work in between; only the halves of one block and one phase belong together.
#include "common/types.cuh"

namespace ingot::kernels::grid_barrier {

// The counter's top bit turns when all have arrived: block 0 adds what the others leave missing to
// 2^31. So the counter may wrap, is never reset, and serves grids of any size one after the other.

// What a block has to know to wait, read at any time before its own arrival: until then the top bit
// stays.
__forceinline__ u32 before(const u32* counter) {
  u32 now;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  return now;
}
// Publishes what this thread has seen written. Nothing comes back: a wait may follow at once.
__forceinline__ void arrive(u32* counter) {
  const u32 share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(share) : "memory");
}
__forceinline__ void wait(const u32* counter, u32 before) {
  u32 now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  } while (((now ^ before) & 0x80000000u) == 0);
}
// Between ordinary accesses and bulk copies of global memory, on both sides of the barrier.
__forceinline__ void order_bulk_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

}  // namespace ingot::kernels::grid_barrier
