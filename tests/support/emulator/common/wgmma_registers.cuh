#pragma once
#include "common/wgmma.cuh"

namespace ingot::kernels::wgmma {

template <int COUNT>
void hold_operand(u32 (&)[COUNT]) {}

template <int N>
void multiply_registers(const std::vector<RegisterOperands>& threads) {
  add_products<N, 32>(
      threads,
      rows_of_registers<32, 4>(
          threads, [](u32 word, int i) { return fp8::value_of(word >> (8 * i) & 0xffu); }),
      rows_of<N, 32>([&](int row, int k) { return element(threads[0].b, row, k); }));
}

template <int N>
void mma_e4m3_registers(float (&d)[N / 8][4], const u32* a, u64 b, int accumulate) {
  queue_products<RegisterOperands, multiply_registers<N>>({&d[0][0], a, b, accumulate});
}

}  // namespace ingot::kernels::wgmma
