#pragma once
#include <atomic>
#include <stdexcept>

#include "common/types.cuh"
#include "tests/support/emulator/cuda.hpp"

// The other ranks' kernels run on other threads of the host.
namespace ingot::kernels::peer {

inline u64 stamped(u32 payload, u32 count) {
  return static_cast<u64>(count) << 32 | payload;
}
inline u32 payload_of(u64 word) {
  return static_cast<u32>(word);
}
inline u32 count_of(u64 word) {
  return static_cast<u32>(word >> 32);
}

inline void check_pair(const void* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0)
    throw std::runtime_error("a pair of words is not aligned to its size");
}
inline void store_words(u64* to, u64 first, u64 second) {
  check_pair(to);
  std::atomic_ref(to[0]).store(first, std::memory_order_relaxed);
  std::atomic_ref(to[1]).store(second, std::memory_order_relaxed);
}
inline void load_words(const u64* from, u64& first, u64& second) {
  check_pair(from);
  u64* words = const_cast<u64*>(from);
  first = std::atomic_ref(words[0]).load(std::memory_order_relaxed);
  second = std::atomic_ref(words[1]).load(std::memory_order_relaxed);
}

inline void store_release(u32* to, u32 value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}
inline u32 load_acquire(const u32* from) {
  return std::atomic_ref(*const_cast<u32*>(from)).load(std::memory_order_acquire);
}
inline void store_relaxed(u32* to, u32 value) {
  std::atomic_ref(*to).store(value, std::memory_order_relaxed);
}
inline u32 load_relaxed(const u32* from) {
  return std::atomic_ref(*const_cast<u32*>(from)).load(std::memory_order_relaxed);
}

inline u64 now_ns() {
  return test::emulator::now_ns();
}
inline void pause() {
  test::emulator::wait_for_others();
}

}  // namespace ingot::kernels::peer
