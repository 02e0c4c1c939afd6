#pragma once
#include "common/wgmma.cuh"

namespace ingot::kernels::wgmma {

template <int COUNT>
void hold_operand(u32 (&)[COUNT]) {}

struct RegisterOperands {
  float* d;
  const u32* a;  // read when the product is waited for, as the hardware may
  u64 b;
  int accumulate;
};
template <int N>
void multiply_registers(const std::vector<RegisterOperands>& threads) {
  std::vector<float> a(64 * 32), b(static_cast<std::size_t>(N * 32));
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 32; ++k)
      b[static_cast<std::size_t>(n * 32 + k)] = element(threads[0].b, n, k);
  for (int thread = 0; thread < 128; ++thread) {
    const u32* const words = threads[static_cast<std::size_t>(thread)].a;
    for (int i = 0; i < 4; ++i)
      for (int byte = 0; byte < 4; ++byte)
        a[static_cast<std::size_t>((thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8) * 32 +
                                   thread % 4 * 4 + byte + i / 2 * 16)] =
            fp8::value_of(words[i] >> (8 * byte) & 0xffu);
  }
  for (int thread = 0; thread < 128; ++thread) {
    float* const d = threads[static_cast<std::size_t>(thread)].d;
    for (int i = 0; i < N / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 32; ++k)
        sum += a[static_cast<std::size_t>(row * 32 + k)] *
               b[static_cast<std::size_t>(column * 32 + k)];
      d[i] = threads[0].accumulate != 0 ? d[i] + sum : sum;
    }
  }
}

inline constexpr char kMultiplyRegisters = 0;

template <int N>
void mma_e4m3_registers(float (&d)[N / 8][4], const u32* a, u64 b, int accumulate) {
  const RegisterOperands operands{&d[0][0], a, b, accumulate};
  test::emulator::warpgroup_collective(
      &kMultiplyRegisters, &operands, nullptr,
      [](const void* const* all, void* const*, const void*) {
        std::vector<RegisterOperands> threads;
        for (int i = 0; i < 128; ++i)
          threads.push_back(*static_cast<const RegisterOperands*>(all[i]));
        for (const RegisterOperands& o : threads)
          if (o.b != threads[0].b || o.accumulate != threads[0].accumulate)
            throw std::runtime_error("threads of a warpgroup disagree on an mma's operands");
        test::emulator::queue_product(
            [threads = std::move(threads)] { multiply_registers<N>(threads); });
      },
      nullptr);
}

}  // namespace ingot::kernels::wgmma
