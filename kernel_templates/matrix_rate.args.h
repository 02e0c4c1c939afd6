#pragma once
#include "common/types.cuh"

namespace ingot::kernels {

struct MatrixRateArgs {
  u32* sink;   // written only where all sums of a thread are one certain value
  int rounds;  // each is MATRIX_RATE_PRODUCTS products of every warp or warpgroup
};

constexpr int MATRIX_RATE_PRODUCTS = 8;

// Multiply-adds of one product: of a warpgroup m64n64, of a warp m16n8, over 16 f16 or 32 e4m3.
constexpr int matrix_rate_multiplies(bool wgmma, bool fp8) {
  return (wgmma ? 64 * 64 : 16 * 8) * (fp8 ? 32 : 16);
}

// One tile of B for each product of a round, 64 columns of 32 bytes.
constexpr int MATRIX_RATE_TILE_BYTES = 64 * 32;

}  // namespace ingot::kernels
