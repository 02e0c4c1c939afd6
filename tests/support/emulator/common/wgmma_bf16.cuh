#pragma once
#include "common/bf16.cuh"
#include "common/wgmma.cuh"

namespace ingot::kernels::wgmma {

inline u32 load_two_codes(u32 from) {
  u16 codes;
  std::memcpy(&codes, test::emulator::shared_pointer(from), sizeof codes);
  return codes;
}
inline u32 codes_to_bf16(u32 codes, u32 factor) {
  const double power = to_float(bf16{static_cast<u16>(factor)}) * 0x1p-120;
  return pack_bf16(static_cast<float>(fp8::value_of(codes & 0xff) * power),
                   static_cast<float>(fp8::value_of(codes >> 8 & 0xff) * power));
}

template <int COUNT>
void hold_all(float (&)[COUNT][4]) {}
template <int COUNT>
void hold_all(u32 (&)[COUNT][4]) {}

// A bf16 element of a tile of 128-byte lines; `column` counts from this k-step on.
inline float bf16_element(u64 descriptor, int line, int column) {
  const u32 plain = (static_cast<u32>(descriptor) << 4) + static_cast<u32>(line * 128 + column * 2);
  u16 bits;
  std::memcpy(&bits, test::emulator::shared_pointer(plain ^ ((plain >> 7 & 7) << 4)), sizeof bits);
  return to_float(bf16{bits});
}

struct Bf16Operands {
  float* d;
  const u32* a;  // read when the product is waited for, as the hardware may
  u64 b;
  int accumulate;
};
template <int N>
void multiply_bf16(const std::vector<Bf16Operands>& threads) {
  std::vector<float> a(64 * 16), b(static_cast<std::size_t>(N * 16));
  for (int n = 0; n < N; ++n)
    for (int k = 0; k < 16; ++k)
      b[static_cast<std::size_t>(n * 16 + k)] = bf16_element(threads[0].b, n, k);
  for (int thread = 0; thread < 128; ++thread) {
    const u32* const words = threads[static_cast<std::size_t>(thread)].a;
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        a[static_cast<std::size_t>((thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8) * 16 +
                                   thread % 4 * 2 + half + i / 2 * 8)] =
            to_float(bf16{static_cast<u16>(words[i] >> (16 * half))});
  }
  for (int thread = 0; thread < 128; ++thread) {
    float* const d = threads[static_cast<std::size_t>(thread)].d;
    for (int i = 0; i < N / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += a[static_cast<std::size_t>(row * 16 + k)] *
               b[static_cast<std::size_t>(column * 16 + k)];
      d[i] = threads[0].accumulate != 0 ? d[i] + sum : sum;
    }
  }
}

inline constexpr char kMultiplyBf16 = 0;

template <int N>
void mma_bf16_registers(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, int accumulate) {
  const Bf16Operands operands{&d[0][0], a, b, accumulate};
  test::emulator::warpgroup_collective(
      &kMultiplyBf16, &operands, nullptr,
      [](const void* const* all, void* const*, const void*) {
        std::vector<Bf16Operands> threads;
        for (int i = 0; i < 128; ++i)
          threads.push_back(*static_cast<const Bf16Operands*>(all[i]));
        for (const Bf16Operands& o : threads)
          if (o.b != threads[0].b || o.accumulate != threads[0].accumulate)
            throw std::runtime_error("threads of a warpgroup disagree on an mma's operands");
        test::emulator::queue_product(
            [threads = std::move(threads)] { multiply_bf16<N>(threads); });
      },
      nullptr);
}

}  // namespace ingot::kernels::wgmma
