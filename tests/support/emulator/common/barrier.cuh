#pragma once
#include <cstring>

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
constexpr int WARP_ARRIVALS = 1;
inline void arrive_warp(u32 barrier, int lane) {
  __syncwarp();
  if (lane == 0) arrive(barrier);
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
inline void prefetch_bulk(const void*, u32) {}

inline u64 evict_first_policy() {
  return 0;
}
inline void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier, u64) {
  copy_bulk(to, from, bytes, barrier);
}
inline void copy_bulk_multicast(u32 to, const void* from, u32 bytes, u32 barrier, u16 ranks, u64) {
  for (unsigned rank = 0; rank < 16; ++rank)
    if (ranks >> rank & 1) test::emulator::copy_bulk_remote(to, from, bytes, barrier, rank);
}
inline void store_bulk(void* to, u32 from, u32 bytes) {
  std::memcpy(to, test::emulator::shared_pointer(from), bytes);
}
inline void commit_stores() {}
inline void wait_stores_read() {}
inline void wait_stores() {}
inline void arrive_remote(u32 barrier, u32 rank) {
  test::emulator::barrier_arrive_remote(barrier, rank);
}
inline void store_remote(u32 to, uint4 value, u32 barrier, u32 rank) {
  test::emulator::store_remote(to, &value, sizeof value, barrier, rank);
}
inline void copy_remote(u32 to, u32 from, u32 bytes, u32 barrier, u32 rank) {
  test::emulator::copy_bulk_remote(to, test::emulator::shared_pointer(from), bytes, barrier, rank);
}
inline void arrive_cluster() {
  test::emulator::arrive_cluster();
}
inline void wait_cluster() {
  test::emulator::wait_cluster();
}

}  // namespace ingot::kernels::barrier
