#pragma once
// What follows the sums of a tile of many tokens' experts: of gate and up the clamp, SwiGLU, the
// router's weight and the quantisation; of down the store. Sums are fragments of the mma: a warp
// has a job of 32 rows in two halves `m`, its lane 4g + c of each rows g and g + 8 and of each
// eight tokens 2c and 2c + 1. By all MATH_WARPS warps. The family's parameters, MATH_WARPS,
// BULK_COPY and the named barrier MATH_MEETS are in scope.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/moe_tiles.cuh"

namespace ingot::kernels::moe {

// What makes weights of the numbers that were multiplied, for rows g and g + 8 of both halves.
struct References {
  float upper[2], lower[2];
};

// A thread has gate (row g) and up (row g + 8) of the same columns of the intermediate, and two
// tokens of each eight.
// @param outputs      [TOKENS][128] of shared memory, 128-byte aligned
// @param all_largest  [2][TOKENS], of which place `turn` is zero; the other one is made so
// Source: model specification section 3.11.
template <int N>
__forceinline__ void finish_gate_up(const MoePrefillArgs& args, u8* outputs, u32* all_largest,
                                    int turn, const Tile& tile, float (&sums)[2][N / 8][4],
                                    const References& of) {
  // Read here: what follows from it is not worth a register through the products.
  const int thread = ptx::thread_here(), lane = thread & 31, warp = thread >> 5;
  const int first = lane % 4 * 2;  // token of eight
  u32* const largest = all_largest + turn * TOKENS;
  u32* const other = all_largest + (turn ^ 1) * TOKENS;
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    if (8 * j >= tile.rows) continue;
    const float2 weights =
        *reinterpret_cast<const float2*>(args.row_weight + tile.row + 8 * j + first);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      u32 bits = 0;  // so that NaN is the largest
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        float gate = to_float(to_bf16(sums[m][j][e] * of.upper[m]));
        float up = to_float(to_bf16(sums[m][j][2 + e] * of.lower[m]));
        gate = gate > args.limit ? args.limit : gate;  // keeps NaN
        up = up > args.limit ? args.limit : up < -args.limit ? -args.limit : up;
        const float silu = __fdividef(gate, 1.0f + exp2_approx(-1.4426950408889634f * gate));
        const float h = to_float(to_bf16((e == 0 ? weights.x : weights.y) * (silu * up)));
        sums[m][j][e] = h;
        bits = max(bits, __float_as_uint(h) & 0x7fffffffu);
      }
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2)
        bits = max(bits, __shfl_xor_sync(~0u, bits, lanes));
      if (lane < 4) atomicMax(largest + 8 * j + first + e, bits);
    }
  }
  if (BULK_COPY && thread == 0) barrier::wait_stores_read();
  ptx::sync_threads(MATH_MEETS, MATH_WARPS * 32);
  for (int i = thread; i < TOKENS; i += MATH_WARPS * 32)
    other[i] = 0;
  const int column = warp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    if (8 * j >= tile.rows) continue;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int exponent = fp8::scale_exponent(__uint_as_float(largest[8 * j + first + e]));
      const float inverse = fp8::inverse_power_of_two(exponent);
      const u32 codes = fp8::from_floats(sums[0][j][e] * inverse, sums[1][j][e] * inverse);
      outputs[j * 1024 + expert_tile_offset(first + e, column)] = static_cast<u8>(codes);
      outputs[j * 1024 + expert_tile_offset(first + e, column + 8)] = static_cast<u8>(codes >> 8);
    }
  }
  const i64 at = static_cast<i64>(tile.strip) * args.row_pitch + tile.row;
  for (int i = thread; i < tile.padded_rows(); i += MATH_WARPS * 32) {
    const u32 bits = largest[i];
    args.h_scale[at + i] = bits > fp8::kInfinityBits
                               ? __uint_as_float(0x7fffffffu)
                               : fp8::power_of_two(fp8::scale_exponent(__uint_as_float(bits)));
  }
  barrier::publish_to_async_proxy();
  ptx::sync_threads(MATH_MEETS, MATH_WARPS * 32);
  if constexpr (BULK_COPY) {
    if (thread == 0) {
      barrier::store_bulk(args.h + at * 128, ptx::shared_address(outputs),
                          static_cast<u32>(tile.padded_rows()) * 128);
      barrier::commit_stores();
    }
  } else {
    for (int i = thread * 16; i < tile.padded_rows() * 128; i += MATH_WARPS * 32 * 16)
      *reinterpret_cast<uint4*>(args.h + at * 128 + i) =
          *reinterpret_cast<const uint4*>(outputs + i);
  }
}

template <int N>
__forceinline__ void finish_down(const MoePrefillArgs& args, const Tile& tile,
                                 const float (&sums)[2][N / 8][4], const References& of) {
  const int thread = ptx::thread_here(), lane = thread & 31, warp = thread >> 5;  // read here
  const i64 column = tile.strip * MOE_PREFILL_ROWS + warp * 32;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      if (8 * j >= tile.rows) continue;
      const float upper[2] = {sums[m][j][0] * of.upper[m], sums[m][j][1] * of.upper[m]};
      const float lower[2] = {sums[m][j][2] * of.lower[m], sums[m][j][3] * of.lower[m]};
      if constexpr (ROUND_EXPERTS) {
        const u32 low = ptx::transpose_matrix(pack_bf16(upper[0], upper[1]));
        const u32 high = ptx::transpose_matrix(pack_bf16(lower[0], lower[1]));
        const int token = 8 * j + lane / 4;
        bf16* const to = static_cast<bf16*>(args.y) + static_cast<i64>(tile.row + token) * HIDDEN +
                         column + m * 16 + lane % 4 * 2;
        if (token < tile.rows) {
          *reinterpret_cast<u32*>(to) = low;
          *reinterpret_cast<u32*>(to + 8) = high;
        }
      } else {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int token = 8 * j + lane % 4 * 2 + e;
          float* const to = static_cast<float*>(args.y) +
                            static_cast<i64>(tile.row + token) * HIDDEN + column + m * 16 +
                            lane / 4;
          if (token < tile.rows) {
            to[0] = upper[e];
            to[8] = lower[e];
          }
        }
      }
    }
}

}  // namespace ingot::kernels::moe
