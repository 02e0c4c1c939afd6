// Multiplies small matrices out of registers and shared memory and does nothing with them: the
// tensor cores' rate, to which the time of steps that are bound by arithmetic is held.
// Launch contract (host twin: MatrixRate::launch_shape in matrix_rate.space.hpp)
//   grid (any)   block (THREADS)   cluster none   arch sm_80 and later; WGMMA: sm_90a
//   smem WGMMA: MATRIX_RATE_PRODUCTS * MATRIX_RATE_TILE_BYTES, dynamic
#include "common/barrier.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/wgmma_e4m3.cuh"
#include "common/wgmma_f16.cuh"
#include "matrix_rate.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "matrix_rate.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(THREADS % 128 == 0, "warpgroups are whole");

// Finite both as e4m3 and as f16, of all signs: cards draw less power for zeros.
__forceinline__ u32 operand(u32 seed) {
  seed = (seed ^ seed >> 15) * 0x2c1b3c6du;
  seed = (seed ^ seed >> 12) * 0x297a2d39u;
  return (seed ^ seed >> 15) & 0xbbbbbbbbu;
}

__forceinline__ float multiply_warps(int rounds) {
  float d[MATRIX_RATE_PRODUCTS][4] = {};
  u32 a[4], b[2];
  for (int i = 0; i < 4; ++i)
    a[i] = operand(threadIdx.x * 8 + i);
  for (int i = 0; i < 2; ++i)
    b[i] = operand(threadIdx.x * 8 + 4 + i);
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int n = 0; n < MATRIX_RATE_PRODUCTS; ++n) {
      if constexpr (FP8)
        mma::e4m3(d[n], a[0], a[1], a[2], a[3], b[0], b[1]);
      else
        mma::f16(d[n], a[0], a[1], a[2], a[3], b[0], b[1]);
    }
  }
  float sum = 0;
  for (int n = 0; n < MATRIX_RATE_PRODUCTS; ++n)
    sum += d[n][0] + d[n][1] + d[n][2] + d[n][3];
  return sum;
}

__forceinline__ float multiply_warpgroups(u8* tiles, int rounds) {
  constexpr int WORDS = MATRIX_RATE_PRODUCTS * MATRIX_RATE_TILE_BYTES / 4;
  for (int i = threadIdx.x; i < WORDS; i += THREADS)
    reinterpret_cast<u32*>(tiles)[i] = operand(i);
  barrier::publish_to_async_proxy();
  __syncthreads();
  constexpr u32 K_STRIDE = 64 * 16;  // 8 blocks of 8 columns, 16 bytes of k each
  const u64 first = wgmma_f16::descriptor(ptx::shared_address(tiles), K_STRIDE);
  float d[32] = {};
  u32 a[4];
  for (int i = 0; i < 4; ++i)
    a[i] = operand(threadIdx.x * 8 + i);
  wgmma_f16::fence();
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int n = 0; n < MATRIX_RATE_PRODUCTS; ++n) {
      const u64 b = wgmma_f16::advance(first, n * MATRIX_RATE_TILE_BYTES);
      if constexpr (FP8)
        wgmma_e4m3::multiply<64>(d, a, b, 1);
      else
        wgmma_f16::multiply<64>(d, a, b, 1);
    }
    wgmma_f16::commit();
    wgmma_f16::wait<1>();
  }
  wgmma_f16::wait<0>();
  wgmma_f16::hold(d);
  float sum = 0;
  for (int i = 0; i < 32; ++i)
    sum += d[i];
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matrix_rate(const __grid_constant__ MatrixRateArgs args) {
  float sum;
  if constexpr (WGMMA)
    sum = multiply_warpgroups(ptx::dynamic_shared_memory(), args.rounds);
  else
    sum = multiply_warps(args.rounds);
  if (sum == 0x1.9e3778p0f) *args.sink = 1;
}

}  // namespace ingot::kernels
