#pragma once
// FP4 e2m1 with ue8m0 scales: the quantiser's rounding points.
#include "common/types.cuh"

namespace ingot::kernels::fp4 {

// Exponent of the scale of a group whose largest magnitude is `amax`: ceil(log2(max(amax, 6 *
// 2^-126) / 6)), taken from the bits. Source: model specification section 3.1.
__forceinline__ int scale_exponent(float amax) {
  const u32 bits = __float_as_uint(fmaxf(amax, 6 * 0x1p-126f) * (1.0f / 6.0f));
  return min(static_cast<int>(bits >> 23) - 127 + ((bits & 0x7fffffu) != 0 ? 1 : 0), 127);
}

// The nearest e2m1 code, ties to even, clamped to +-6. Zero keeps its sign; NaN has no code.
__forceinline__ u32 code_of(float value) {
  const u32 sign = __float_as_uint(value) >> 28 & 8u;
  float a = fminf(fabsf(value), 6.0f);
  if (a < 1.0f) {  // steps of a half; fp32 near 1.5 * 2^22 has the same step
    a = (a + 0x1.8p22f) - 0x1.8p22f;
    return sign | static_cast<u32>(a * 2.0f);
  }
  const u32 bits = __float_as_uint(a);
  return sign | ((bits + (bits >> 22 & 1) + 0x1fffffu - (126u << 23)) >> 22);
}

}  // namespace ingot::kernels::fp4
