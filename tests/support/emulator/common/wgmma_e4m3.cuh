#pragma once
#include "common/fp8.cuh"
#include "common/wgmma_f16.cuh"

namespace ingot::kernels::wgmma_e4m3 {

template <int N>
using Operands = wgmma_f16::Operands<N>;

template <int N>
void multiply_collective(const void* const* operands, void* const* results, const void*) {
  const auto& first = *static_cast<const Operands<N>*>(operands[0]);
  const u32 base = static_cast<u32>(first.b & 0x3fff) << 4;
  const u32 k_stride = static_cast<u32>(first.b >> 16 & 0x3fff) << 4;
  const u32 column_stride = static_cast<u32>(first.b >> 32 & 0x3fff) << 4;
  std::vector<float> b(static_cast<std::size_t>(32 * N)), a(64 * 32);
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 32; ++k)
      b[static_cast<std::size_t>(k * N + n)] =
          fp8::value_of(*static_cast<const u8*>(test::emulator::shared_pointer(
              base + static_cast<u32>(k / 16) * k_stride + static_cast<u32>(n / 8) * column_stride +
              static_cast<u32>(n % 8 * 16 + k % 16))));
  for (int thread = 0; thread < 128; ++thread) {
    const auto& f = *static_cast<const Operands<N>*>(operands[thread]);
    if (f.b != first.b || f.accumulate != first.accumulate)
      throw std::runtime_error("threads of a warpgroup disagree on an mma's operands");
    const int g = thread % 32 / 4, c = thread % 4;
    for (int i = 0; i < 4; ++i)
      for (int byte = 0; byte < 4; ++byte)
        a[static_cast<std::size_t>((thread / 32 * 16 + g + i % 2 * 8) * 32 + 4 * c + byte +
                                   i / 2 * 16)] = fp8::value_of(f.a[i] >> (8 * byte) & 0xffu);
  }
  for (int thread = 0; thread < 128; ++thread) {
    const auto& f = *static_cast<const Operands<N>*>(operands[thread]);
    for (int i = 0; i < N / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      double sum = f.accumulate != 0 ? f.d[i] : 0.0f;
      for (int k = 0; k < 32; ++k)
        sum += static_cast<double>(a[static_cast<std::size_t>(row * 32 + k)]) *
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

}  // namespace ingot::kernels::wgmma_e4m3
