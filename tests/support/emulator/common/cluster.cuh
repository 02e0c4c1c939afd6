#pragma once
#include "common/barrier.cuh"
#include "tests/support/emulator/cluster.hpp"

namespace ingot::kernels::cluster {

inline void arrive_expect_remote(u32 barrier, u32 bytes, u32 rank) {
  test::emulator::barrier_expect_remote(barrier, bytes, rank);
  test::emulator::barrier_arrive_remote(barrier, rank);
}
inline void sync_cluster() {
  test::emulator::arrive_cluster();
  test::emulator::wait_cluster();
}
inline u32 load_remote(u32 from, u32 rank) {
  u32 value;
  test::emulator::load_remote(&value, from, sizeof value, rank);
  return value;
}

}  // namespace ingot::kernels::cluster
