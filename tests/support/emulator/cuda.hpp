#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "tests/support/emulator/device.hpp"

// The words of CUDA C++ that the templates use and a C++ compiler does not know.

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define threadIdx (ingot::test::emulator::thread_index())
#define blockIdx (ingot::test::emulator::block_index())
#define blockDim (ingot::test::emulator::block_size())
#define gridDim (ingot::test::emulator::grid_size())

struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

template <class T>
T __ldcs(const T* from) {
  return *from;
}

inline int min(int a, int b) {
  return a < b ? a : b;
}
inline long long min(long long a, long long b) {
  return a < b ? a : b;
}
inline long long max(long long a, long long b) {
  return a > b ? a : b;
}
inline int max(int a, int b) {
  return a > b ? a : b;
}
inline unsigned min(unsigned a, unsigned b) {
  return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b) {
  return a > b ? a : b;
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __int_as_float(int bits) {
  return std::bit_cast<float>(bits);
}
inline int __float_as_int(float value) {
  return std::bit_cast<int>(value);
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fdividef(float a, float b) {
  return a / b;
}
// -ffp-contract=off: the plain operators round as these do.
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dsub_rn(double a, double b) {
  return a - b;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline long long __double2ll_rn(double x) {
  return std::llrint(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __ffs(unsigned x) {
  return x == 0 ? 0 : std::countr_zero(x) + 1;
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = (static_cast<std::uint64_t>(b) << 32) | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (8 * ((selector >> (4 * i)) & 7)) & 0xff) << (8 * i);
  return result;
}
inline unsigned __vmaxu2(unsigned a, unsigned b) {
  const unsigned low = max(a & 0xffffu, b & 0xffffu), high = max(a >> 16, b >> 16);
  return low | (high << 16);
}

namespace ingot::test::emulator {

template <class T>
T exchange(const void* site, T value, int (*source)(int lane, int argument), int argument) {
  struct Operand {
    T value;
    int from;
  };
  const Operand operand{value, source(static_cast<int>(lane()), argument)};
  T result;
  warp_collective(
      site, &operand, &result,
      [](const void* const* operands, void* const* results, const void*) {
        for (int i = 0; i < 32; ++i)
          *static_cast<T*>(results[i]) =
              static_cast<const Operand*>(operands[static_cast<const Operand*>(operands[i])->from])
                  ->value;
      },
      nullptr);
  return result;
}
inline unsigned ballot(const void* site, bool predicate) {
  const unsigned operand = predicate;
  unsigned result = 0;
  warp_collective(
      site, &operand, &result,
      [](const void* const* operands, void* const* results, const void*) {
        unsigned bits = 0;
        for (int i = 0; i < 32; ++i)
          bits |= *static_cast<const unsigned*>(operands[i]) << i;
        for (int i = 0; i < 32; ++i)
          *static_cast<unsigned*>(results[i]) = bits;
      },
      nullptr);
  return result;
}
// One number from all lanes' numbers, for all lanes.
inline unsigned reduce(const void* site, unsigned value, unsigned (*join)(unsigned, unsigned)) {
  unsigned result = 0;
  warp_collective(
      site, &value, &result,
      [](const void* const* operands, void* const* results, const void* extra) {
        const auto both = *static_cast<unsigned (*const*)(unsigned, unsigned)>(extra);
        unsigned joined = *static_cast<const unsigned*>(operands[0]);
        for (int i = 1; i < 32; ++i)
          joined = both(joined, *static_cast<const unsigned*>(operands[i]));
        for (int i = 0; i < 32; ++i)
          *static_cast<unsigned*>(results[i]) = joined;
      },
      &join);
  return result;
}
inline constexpr char kShuffleXor = 0, kShuffle = 0, kShuffleUp = 0, kBallot = 0, kSyncWarp = 0,
                      kReduceAdd = 0, kReduceMin = 0, kReduceMax = 0, kMaximum = 0;

}  // namespace ingot::test::emulator

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  using namespace ingot::test::emulator;
  return exchange(
      &kShuffleXor, value, [](int lane, int m) { return lane ^ m; }, mask);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int lanes) {
  using namespace ingot::test::emulator;
  return exchange(
      &kShuffleUp, value, [](int lane, int up) { return lane >= up ? lane - up : lane; }, lanes);
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  using namespace ingot::test::emulator;
  return exchange(
      &kShuffle, value, [](int, int source) { return source & 31; }, from);
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  using namespace ingot::test::emulator;
  return reduce(&kReduceAdd, value, [](unsigned a, unsigned b) { return a + b; });
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  using namespace ingot::test::emulator;
  return reduce(&kReduceMin, value, [](unsigned a, unsigned b) { return min(a, b); });
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  using namespace ingot::test::emulator;
  return reduce(&kReduceMax, value, [](unsigned a, unsigned b) { return max(a, b); });
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
  return ingot::test::emulator::ballot(&ingot::test::emulator::kBallot, predicate);
}
inline int __reduce_max_sync(unsigned, int value) {
  int result = 0;
  ingot::test::emulator::warp_collective(
      &ingot::test::emulator::kMaximum, &value, &result,
      [](const void* const* operands, void* const* results, const void*) {
        int most = *static_cast<const int*>(operands[0]);
        for (int i = 1; i < 32; ++i)
          most = max(most, *static_cast<const int*>(operands[i]));
        for (int i = 0; i < 32; ++i)
          *static_cast<int*>(results[i]) = most;
      },
      nullptr);
  return result;
}
inline bool __any_sync(unsigned, bool predicate) {
  return __ballot_sync(~0u, predicate) != 0;
}
inline void __syncwarp() {
  (void)ingot::test::emulator::ballot(&ingot::test::emulator::kSyncWarp, true);
}
inline void __syncthreads() {
  const auto& size = ingot::test::emulator::block_size();
  ingot::test::emulator::sync_block(0, static_cast<int>(size.x * size.y * size.z), true);
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  if (value > old) *at = value;
  return old;
}
template <class T>
T atomicMin(T* at, T value) {
  const T old = *at;
  if (value < old) *at = value;
  return old;
}
inline unsigned atomicAdd(unsigned* at, unsigned value) {
  const unsigned old = *at;
  *at = old + value;
  return old;
}
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  const unsigned long long old = *at;
  *at = old + value;
  return old;
}
inline unsigned atomicOr(unsigned* at, unsigned value) {
  const unsigned old = *at;
  *at = old | value;
  return old;
}
inline void __threadfence() {}
