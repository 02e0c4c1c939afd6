#pragma once
#include <stdexcept>

#include "common/types.cuh"
#include "tests/support/emulator/cuda.hpp"

namespace ingot::kernels::ptx {

inline u8* dynamic_shared_memory() {
  return reinterpret_cast<u8*>(test::emulator::shared_base());
}
inline u32 shared_address(const void* pointer) {
  return test::emulator::shared_address(pointer);
}

inline int thread_here() {
  return static_cast<int>(threadIdx.x);
}

struct MatrixLoad {
  int count;
  bool transposed;
};
inline constexpr MatrixLoad kPlain4{4, false}, kTransposed4{4, true}, kPlain2{2, false};
// Operands: an address per lane. Results: `count` words per lane.
inline void load_matrices_collective(const void* const* operands, void* const* results,
                                     const void* extra) {
  const auto& load = *static_cast<const MatrixLoad*>(extra);
  for (int m = 0; m < load.count; ++m) {
    u16 matrix[8][8];
    for (int row = 0; row < 8; ++row) {
      const u32 address = *static_cast<const u32*>(operands[m * 8 + row]);
      if (address % 16 != 0) throw std::runtime_error("a matrix row is not aligned to 16 bytes");
      std::memcpy(matrix[row], test::emulator::shared_pointer(address), 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, c = lane % 4;
      const u16 low = load.transposed ? matrix[2 * c][g] : matrix[g][2 * c];
      const u16 high = load.transposed ? matrix[2 * c + 1][g] : matrix[g][2 * c + 1];
      static_cast<u32*>(results[lane])[m] = low | (static_cast<u32>(high) << 16);
    }
  }
}
inline void load_matrices(u32 (&r)[4], u32 address) {
  test::emulator::warp_collective(&kPlain4, &address, r, load_matrices_collective, &kPlain4);
}
inline void load_matrices_transposed(u32 (&r)[4], u32 address) {
  test::emulator::warp_collective(&kTransposed4, &address, r, load_matrices_collective,
                                  &kTransposed4);
}
inline void load_matrices(u32 (&r)[2], u32 address) {
  test::emulator::warp_collective(&kPlain2, &address, r, load_matrices_collective, &kPlain2);
}
inline constexpr char kTranspose = 0;
inline u32 transpose_matrix(u32 fragment) {
  u32 result = 0;
  test::emulator::warp_collective(
      &kTranspose, &fragment, &result,
      [](const void* const* operands, void* const* results, const void*) {
        u16 matrix[8][8];
        for (int lane = 0; lane < 32; ++lane) {
          const u32 word = *static_cast<const u32*>(operands[lane]);
          matrix[lane / 4][lane % 4 * 2] = static_cast<u16>(word);
          matrix[lane / 4][lane % 4 * 2 + 1] = static_cast<u16>(word >> 16);
        }
        for (int lane = 0; lane < 32; ++lane)
          *static_cast<u32*>(results[lane]) =
              matrix[lane % 4 * 2][lane / 4] |
              (static_cast<u32>(matrix[lane % 4 * 2 + 1][lane / 4]) << 16);
      },
      nullptr);
  return result;
}
inline u32 permute(u32 low, u32 high, u32 selectors) {
  if ((selectors & 0x8888u) != 0) throw std::runtime_error("a selector replicates a sign");
  return __byte_perm(low, high, selectors);
}
inline u32 max_u16x2(u32 a, u32 b) {
  return max(a & 0xffffu, b & 0xffffu) | max(a >> 16, b >> 16) << 16;
}
inline float2 load_shared(u32 from) {
  float2 value;
  std::memcpy(&value, test::emulator::shared_pointer(from), sizeof value);
  return value;
}
inline float load_shared_float(u32 from) {
  float value;
  std::memcpy(&value, test::emulator::shared_pointer(from), sizeof value);
  return value;
}
inline uint4 load_shared_words(u32 from) {
  uint4 value;
  std::memcpy(&value, test::emulator::shared_pointer(from), sizeof value);
  return value;
}
inline void store_shared(u32 to, uint2 value) {
  std::memcpy(test::emulator::shared_pointer(to), &value, sizeof value);
}
inline void store_shared(u32 to, uint4 value) {
  std::memcpy(test::emulator::shared_pointer(to), &value, sizeof value);
}
inline void sync_threads(int id, int threads) {
  test::emulator::sync_block(id, threads, true);
}
inline bool sync_threads_or(int id, int threads, bool predicate) {
  return test::emulator::sync_block_or(id, threads, predicate);
}
inline void arrive_threads(int id, int threads) {
  test::emulator::sync_block(id, threads, false);
}

inline void copy16_async(u32 to, const void* from) {
  test::emulator::copy_async(to, from, 16);
}
inline void copy8_async(u32 to, const void* from) {
  test::emulator::copy_async(to, from, 8);
}
inline void commit_copies() {
  test::emulator::commit_copies();
}
template <int PENDING>
inline void wait_copies() {
  test::emulator::wait_copies(PENDING);
}

template <class T>
T load_aligned(const void* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T) != 0)
    throw std::runtime_error("a load is not aligned to its size");
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
inline void store_relaxed(void* to, uint4 value) {
  std::memcpy(to, &value, sizeof value);
}
inline void store_relaxed(void* to, uint2 value) {
  std::memcpy(to, &value, sizeof value);
}
inline void store_relaxed(void* to, u32 value) {
  std::memcpy(to, &value, sizeof value);
}
inline uint4 load_relaxed(const void* from) {
  test::emulator::yield();
  return load_aligned<uint4>(from);
}
inline uint2 load_relaxed_pair(const void* from) {
  test::emulator::yield();
  return load_aligned<uint2>(from);
}
inline u32 load_relaxed_word(const void* from) {
  test::emulator::yield();
  return load_aligned<u32>(from);
}
inline u32 load_byte(const void* from) {
  return *static_cast<const u8*>(from);
}
inline int load_int(const int* from) {
  return load_aligned<int>(from);
}
inline float load_float(const float* from) {
  return load_aligned<float>(from);
}
inline uint2 load_pair(const void* from) {
  return load_aligned<uint2>(from);
}
inline uint4 load_words(const void* from) {
  return load_aligned<uint4>(from);
}
inline u32 load_word(const void* from) {
  return load_aligned<u32>(from);
}

template <int REGISTERS>
inline void take_registers() {}
template <int REGISTERS>
inline void give_registers() {}

}  // namespace ingot::kernels::ptx
