#pragma once
// What follows the sums of a tile of many tokens' experts: of gate and up the clamp, SwiGLU, the
// router's weight and the quantisation; of down the store. Sums are fragments of the mma: a warp
// has HALVES times 16 rows, its lane 4g + c of each rows g and g + 8 and of each eight tokens 2c
// and 2c + 1. By all MATH_WARPS warps. The family's parameters, MATH_WARPS, HALVES, BULK_COPY and
// the named barrier MATH_MEETS are in scope.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/moe_tiles.cuh"

namespace ingot::kernels::moe {

// What makes weights of the numbers that were multiplied, for rows g and g + 8 of each half.
struct References {
  float upper[HALVES], lower[HALVES];
};

// Weighted activation of one gate and up, which are rounded to bf16.
// Source: model specification section 3.11.
__forceinline__ float activate(float gate, float up, float limit, float weight) {
  gate = gate > limit ? limit : gate;  // keeps NaN
  up = up > limit ? limit : up < -limit ? -limit : up;
  const float silu = __fdividef(gate, 1.0f + exp2_approx(-1.4426950408889634f * gate));
  return weight * (silu * up);
}

// A thread has gate (row g) and up (row g + 8) of the same columns of the intermediate, and two
// tokens of each eight. Columns past tile.rows are computed like the others, of whatever is there:
// straight code, whose latencies overlap.
// @param outputs      [TOKENS][128] of shared memory, 128-byte aligned
// @param largest      [TOKENS], zero, and zero again; behind it [TOKENS] for inverse scales
template <int N>
__forceinline__ void finish_gate_up(const MoePrefillArgs& args, u8* outputs, u32* largest,
                                    const Tile& tile, float (&sums)[HALVES][N / 8][4],
                                    const References& of) {
  // Read here: what follows from it is not worth a register through the products.
  const int thread = ptx::thread_here(), lane = thread & 31, warp = thread >> 5;
  const int first = lane % 4 * 2;  // token of eight
  float* const inverse_scales = reinterpret_cast<float*>(largest + TOKENS);
  const float* const row_weights = args.row_weight + tile.row + first;
  float2 weights[7];     // asked for together
  u32 h[HALVES][N / 8];  // of both tokens
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    if (j % 7 == 0) {
#pragma unroll
      for (int i = 0; i < 7; ++i)
        weights[i] = 8 * (j + i) < min(tile.rows, N)
                         ? *reinterpret_cast<const float2*>(row_weights + 8 * (j + i))
                         : float2{0.0f, 0.0f};
    }
    u32 magnitudes = 0;  // of bits, so that NaN is the largest
#pragma unroll
    for (int m = 0; m < HALVES; ++m) {
      const u32 gates = pack_bf16(sums[m][j][0] * of.upper[m], sums[m][j][1] * of.upper[m]);
      const u32 ups = pack_bf16(sums[m][j][2] * of.lower[m], sums[m][j][3] * of.lower[m]);
      h[m][j] = pack_bf16(
          activate(low_to_float(gates), low_to_float(ups), args.limit, weights[j % 7].x),
          activate(high_to_float(gates), high_to_float(ups), args.limit, weights[j % 7].y));
      magnitudes = ptx::max_u16x2(magnitudes, h[m][j] & 0x7fff7fffu);
    }
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2)
      magnitudes = ptx::max_u16x2(magnitudes, __shfl_xor_sync(~0u, magnitudes, lanes));
    if (lane < 8)  // four for the first tokens, four for the second
      atomicMax(largest + 8 * j + first + lane / 4,
                lane < 4 ? magnitudes << 16 : magnitudes & 0xffff0000u);
  }
  if (BULK_COPY && thread == 0) barrier::wait_stores_read();
  ptx::sync_threads(MATH_MEETS, MATH_WARPS * 32);
  const i64 at = static_cast<i64>(tile.strip) * args.row_pitch + tile.row;
  for (int i = thread; i < TOKENS; i += MATH_WARPS * 32) {
    const u32 bits = largest[i];
    const int exponent = fp8::scale_exponent(__uint_as_float(bits));
    if (i < tile.padded_rows())
      args.h_scale[at + i] =
          bits > fp8::kInfinityBits ? __uint_as_float(0x7fffffffu) : fp8::power_of_two(exponent);
    inverse_scales[i] = fp8::inverse_power_of_two(exponent);
    largest[i] = 0;
  }
  ptx::sync_threads(MATH_MEETS, MATH_WARPS * 32);
  const int column = warp * (HALVES * 8) + lane / 4;
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const float2 inverse = *reinterpret_cast<const float2*>(inverse_scales + 8 * j + first);
#pragma unroll
    for (int m = 0; m < HALVES; ++m) {
      const u32 codes =
          fp8::from_floats(low_to_float(h[m][j]) * inverse.x, high_to_float(h[m][j]) * inverse.y);
      u8* const to = outputs + j * 1024;
      to[expert_tile_offset(first, column + m * 8)] = static_cast<u8>(codes);
      to[expert_tile_offset(first + 1, column + m * 8)] = static_cast<u8>(codes >> 8);
    }
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
                                 const float (&sums)[HALVES][N / 8][4], const References& of) {
  const int thread = ptx::thread_here(), lane = thread & 31, warp = thread >> 5;  // read here
  const i64 column = tile.strip * MOE_PREFILL_ROWS + warp * (HALVES * 16);
#pragma unroll
  for (int m = 0; m < HALVES; ++m)
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
