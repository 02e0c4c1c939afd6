#pragma once
// The tail of index keys and queries: Hadamard transform over 128 dimensions, then FP4 in groups of
// 32. A warp holds an entry: lane l dimensions N * l .. N * l + N - 1 (N = 4).
// Source: model specification section 3.10.
#include "common/bf16.cuh"
#include "common/fp4.cuh"
#include "common/fp8.cuh"
#include "common/types.cuh"

namespace ingot::kernels::index_entry {

// y = H * x / sqrt(128), rounded to bf16, in the reference's order: neighbours first.
template <int N>
__forceinline__ void transform(float (&x)[N]) {
#pragma unroll
  for (int half = 1; half < N; half *= 2)
#pragma unroll
    for (int c = 0; c < N; ++c)
      if ((c & half) == 0) {
        const float a = x[c], b = x[c + half];
        x[c] = a + b;
        x[c + half] = a - b;
      }
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2)
#pragma unroll
    for (int c = 0; c < N; ++c) {
      const float other = __shfl_xor_sync(0xffffffffu, x[c], lanes);
      x[c] = (threadIdx.x & lanes) == 0 ? x[c] + other : other - x[c];
    }
#pragma unroll
  for (int c = 0; c < N; ++c)
    x[c] = to_float(to_bf16(x[c] * 0.088388347648318447f));
}

// Writes the entry's 64 bytes of codes and 4 scales; a group with NaN gets the scale 255.
template <int N>
__forceinline__ void store(const float (&x)[N], u8* codes, u8* scales) {
  constexpr int GROUP_LANES = 32 / N;
  float largest = 0.0f;
  bool has_nan = false;
#pragma unroll
  for (int c = 0; c < N; ++c) {
    largest = fmaxf(largest, fabsf(x[c]));
    has_nan |= x[c] != x[c];
  }
#pragma unroll
  for (int lanes = 1; lanes < GROUP_LANES; lanes *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
  const u32 nan_lanes = __ballot_sync(0xffffffffu, has_nan);
  const int exponent = fp4::scale_exponent(largest), lane = threadIdx.x % 32;
  const float factor = fp8::inverse_power_of_two(exponent);
  u32 four = 0;
#pragma unroll
  for (int c = 0; c < N; ++c)
    four |= fp4::code_of(x[c] * factor) << (4 * c);
  reinterpret_cast<u16*>(codes)[lane] = static_cast<u16>(four);
  if (lane % GROUP_LANES == 0) {
    const bool nan = (nan_lanes >> lane & 0xffffffffu >> (32 - GROUP_LANES)) != 0;
    scales[lane / GROUP_LANES] = static_cast<u8>(nan ? 255 : exponent + 127);
  }
}

}  // namespace ingot::kernels::index_entry
