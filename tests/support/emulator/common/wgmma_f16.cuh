#pragma once
#include "common/f16.cuh"

namespace ingot::kernels::wgmma_f16 {

inline u64 descriptor(u32 address, u32 k_stride) {
  return ((address & 0x3ffffu) >> 4) | (static_cast<u64>(k_stride >> 4) << 16) | (8ull << 32);
}
inline u64 advance(u64 descriptor, u32 bytes) {
  return descriptor + (bytes >> 4);
}
inline void fence() {}
inline void commit() {}
template <int PENDING>
void wait() {}
template <int COUNT>
void hold(float (&)[COUNT]) {}

// What a thread brings: its part of D, its fragment of A, and the descriptor of B.
template <int N>
struct Operands {
  float d[N / 2];
  u32 a[4];
  u64 b;
  int accumulate;
};

template <int N>
void multiply_collective(const void* const* operands, void* const* results, const void*) {
  const auto& first = *static_cast<const Operands<N>*>(operands[0]);
  const u32 base = static_cast<u32>(first.b & 0x3fff) << 4;
  const u32 k_stride = static_cast<u32>(first.b >> 16 & 0x3fff) << 4;
  const u32 column_stride = static_cast<u32>(first.b >> 32 & 0x3fff) << 4;
  std::vector<float> b(static_cast<std::size_t>(16 * N)), a(64 * 16);
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 16; ++k) {
      u16 bits;
      std::memcpy(&bits,
                  test::emulator::shared_pointer(base + static_cast<u32>(k / 8) * k_stride +
                                                 static_cast<u32>(n / 8) * column_stride +
                                                 static_cast<u32>(n % 8 * 16 + k % 8 * 2)),
                  2);
      b[static_cast<std::size_t>(k * N + n)] = f16_value(bits);
    }
  for (int thread = 0; thread < 128; ++thread) {
    const auto& f = *static_cast<const Operands<N>*>(operands[thread]);
    if (f.b != first.b || f.accumulate != first.accumulate)
      throw std::runtime_error("threads of a warpgroup disagree on an mma's operands");
    const int g = thread % 32 / 4, c = thread % 4;
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        a[static_cast<std::size_t>((thread / 32 * 16 + g + i % 2 * 8) * 16 + 2 * c + half +
                                   i / 2 * 8)] = f16_value(f.a[i] >> (16 * half) & 0xffffu);
  }
  for (int thread = 0; thread < 128; ++thread) {
    const auto& f = *static_cast<const Operands<N>*>(operands[thread]);
    for (int i = 0; i < N / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      double sum = f.accumulate != 0 ? f.d[i] : 0.0f;
      for (int k = 0; k < 16; ++k)
        sum += static_cast<double>(a[static_cast<std::size_t>(row * 16 + k)]) *
               b[static_cast<std::size_t>(k * N + column)];
      static_cast<float*>(results[thread])[i] = static_cast<float>(sum);
    }
  }
}
inline constexpr char kMultiply = 0;

template <int N>
void multiply(float (&d)[N / 2], const u32 (&a)[4], u64 b, int accumulate) {
  Operands<N> operands{{}, {a[0], a[1], a[2], a[3]}, b, accumulate};
  std::memcpy(operands.d, d, sizeof d);
  test::emulator::warpgroup_collective(&kMultiply, &operands, d, multiply_collective<N>, nullptr);
}

}  // namespace ingot::kernels::wgmma_f16
