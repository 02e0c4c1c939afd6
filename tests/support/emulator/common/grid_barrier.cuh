#pragma once
#include "common/types.cuh"
#include "tests/support/emulator/cuda.hpp"

namespace ingot::kernels::grid_barrier {

inline u32 arrive(u32* counter) {
  const u32 share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
  const u32 before = *counter;
  *counter += share;
  return before;
}
inline void wait(const u32* counter, u32 before) {
  while (((*counter ^ before) & 0x80000000u) == 0)
    test::emulator::yield();
}
inline void order_bulk_copies() {}

}  // namespace ingot::kernels::grid_barrier
