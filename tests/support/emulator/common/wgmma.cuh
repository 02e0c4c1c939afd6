#pragma once
#include "common/fp8.cuh"
#include "common/ptx.cuh"

namespace ingot::kernels::wgmma {

constexpr u32 kStep32 = 32 >> 4;
inline u32 tile_place(u32 address) {
  if (address % 1024 != 0) throw std::runtime_error("a tile is not aligned to its swizzle");
  return address >> 4;
}
inline u64 tile_descriptor(u32 place) {
  return place;
}
// An element of a tile of 128-byte lines; `column` counts from this k-step on.
inline float element(u64 descriptor, int line, int column) {
  const u32 plain = (static_cast<u32>(descriptor) << 4) + static_cast<u32>(line * 128 + column);
  return fp8::value_of(
      *static_cast<const u8*>(test::emulator::shared_pointer(plain ^ ((plain >> 7 & 7) << 4))));
}

inline void fence() {}
inline void hold(float&) {}

// What a thread brings: where its part of D is, and the operands.
struct Operands {
  float* d;
  u64 a, b;
  int accumulate;
};
template <int N>
void multiply(const std::vector<Operands>& threads) {
  const u64 a_tile = threads[0].a, b_tile = threads[0].b;
  std::vector<float> a(64 * 32), b(static_cast<std::size_t>(N * 32));
  for (int k = 0; k < 32; ++k) {
    for (int m = 0; m < 64; ++m)
      a[static_cast<std::size_t>(m * 32 + k)] = element(a_tile, m, k);
    for (int n = 0; n < N; ++n)
      b[static_cast<std::size_t>(n * 32 + k)] = element(b_tile, n, k);
  }
  for (int thread = 0; thread < 128; ++thread) {
    float* const d = threads[static_cast<std::size_t>(thread)].d;
    for (int i = 0; i < N / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      float sum = 0;  // of 32 products: the order does not show in a bf16 result
      for (int k = 0; k < 32; ++k)
        sum += a[static_cast<std::size_t>(row * 32 + k)] *
               b[static_cast<std::size_t>(column * 32 + k)];
      d[i] = threads[0].accumulate != 0 ? d[i] + sum : sum;
    }
  }
}

inline constexpr char kMultiply = 0, kCommit = 0, kWait = 0;

template <int N>
void mma_e4m3(float (&d)[N / 8][4], u64 a, u64 b, int accumulate) {
  const Operands operands{&d[0][0], a, b, accumulate};
  test::emulator::warpgroup_collective(
      &kMultiply, &operands, nullptr,
      [](const void* const* all, void* const*, const void*) {
        std::vector<Operands> threads;
        for (int i = 0; i < 128; ++i)
          threads.push_back(*static_cast<const Operands*>(all[i]));
        for (const Operands& o : threads)
          if (o.a != threads[0].a || o.b != threads[0].b || o.accumulate != threads[0].accumulate)
            throw std::runtime_error("threads of a warpgroup disagree on an mma's operands");
        test::emulator::queue_product([threads = std::move(threads)] { multiply<N>(threads); });
      },
      nullptr);
}
inline void commit() {
  test::emulator::warpgroup_collective(
      &kCommit, nullptr, nullptr,
      [](const void* const*, void* const*, const void*) { test::emulator::commit_products(); },
      nullptr);
}
template <int PENDING>
void wait() {
  static constexpr std::size_t kPending = PENDING;
  test::emulator::warpgroup_collective(
      &kWait, nullptr, nullptr,
      [](const void* const*, void* const*, const void* pending) {
        test::emulator::wait_products(*static_cast<const std::size_t*>(pending));
      },
      &kPending);
}

}  // namespace ingot::kernels::wgmma
