#pragma once
#include <stdexcept>

#include "common/types.cuh"
#include "tests/support/emulator/cuda.hpp"

namespace ingot::kernels::barrier {

inline void init(u32 barrier, int arrivals) {
  test::emulator::barrier_init(barrier, arrivals);
}
inline void publish_init() {}
inline void arrive(u32 barrier) {
  test::emulator::barrier_arrive(barrier);
}
inline void expect(u32 barrier, u32 bytes) {
  test::emulator::barrier_expect(barrier, bytes);
}
inline void arrive_expect(u32 barrier, u32 bytes) {
  expect(barrier, bytes);
  arrive(barrier);
}
inline void arrive_when_copied(u32 barrier) {
  test::emulator::arrive_when_copied(barrier);
}
inline void wait(u32 barrier, u32 parity) {
  test::emulator::barrier_wait(barrier, parity);
}
inline void publish_to_async_proxy() {}
inline void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
  test::emulator::copy_bulk(to, from, bytes, barrier);
}
// Clusters are not modelled.
inline void store_remote(u32, uint4, u32, u32) {
  throw std::runtime_error("a cluster's memory is not modelled");
}
inline void copy_remote(u32, u32, u32, u32, u32) {
  throw std::runtime_error("a cluster's memory is not modelled");
}

}  // namespace ingot::kernels::barrier
