#pragma once
#include "common/types.cuh"
#include "tests/support/emulator/cuda.hpp"

namespace ingot::kernels::grid_barrier {

inline u32 before(const u32* counter) {
  return *counter;
}
inline void arrive(u32* counter) {
  *counter += blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
}
inline void wait(const u32* counter, u32 before) {
  while (((*counter ^ before) & 0x80000000u) == 0)
    test::emulator::yield();
}
inline void order_bulk_copies() {}

}  // namespace ingot::kernels::grid_barrier
