#pragma once
#include "common/wgmma_bf16.cuh"

namespace ingot::kernels::wgmma {

template <int N>
void multiply_bf16_shared(const std::vector<Operands>& threads) {
  add_products<N, 16>(
      threads, rows_of<64, 16>([&](int row, int k) { return bf16_element(threads[0].a, row, k); }),
      rows_of<N, 16>([&](int row, int k) { return bf16_element(threads[0].b, row, k); }));
}

template <int N>
void mma_bf16(float (&d)[N / 8][4], u64 a, u64 b, int accumulate) {
  queue_products<Operands, multiply_bf16_shared<N>>({&d[0][0], a, b, accumulate});
}

}  // namespace ingot::kernels::wgmma
