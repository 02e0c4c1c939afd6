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

template <int N>
void multiply_bf16(const std::vector<RegisterOperands>& threads) {
  add_products<N, 16>(
      threads,
      rows_of_registers<16, 2>(
          threads,
          [](u32 word, int i) { return to_float(bf16{static_cast<u16>(word >> (16 * i))}); }),
      rows_of<N, 16>([&](int row, int k) { return bf16_element(threads[0].b, row, k); }));
}

template <int N>
void mma_bf16_registers(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, int accumulate) {
  queue_products<RegisterOperands, multiply_bf16<N>>({&d[0][0], a, b, accumulate});
}

}  // namespace ingot::kernels::wgmma
