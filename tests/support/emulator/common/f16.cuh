#pragma once
#include "common/types.cuh"
#include "tests/support/emulator/cuda.hpp"

namespace ingot::kernels {

inline float f16_value(u32 bits) {
  const int exponent = static_cast<int>(bits >> 10) & 31;
  const float mantissa = static_cast<float>(bits & 0x3ffu);
  float value = exponent == 31  ? ((bits & 0x3ffu) != 0 ? NAN : INFINITY)
                : exponent == 0 ? std::ldexp(mantissa, -24)
                                : std::ldexp(1024.0f + mantissa, exponent - 25);
  return (bits & 0x8000u) != 0 ? -value : value;
}
inline u32 f16_bits(float value) {
  const u32 sign = (__float_as_uint(value) >> 16) & 0x8000u;
  const float magnitude = std::fabs(value);
  if (value != value) return 0x7fffu;
  if (magnitude >= 65520.0f) return sign | 0x7c00u;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  exponent = max(exponent, -13);
  const float steps = std::nearbyint(std::ldexp(magnitude, 11 - exponent));  // ties to even
  const float rounded = std::ldexp(steps, exponent - 11);
  if (rounded == 0.0f) return sign;
  if (rounded < 0x1p-14f) return sign | static_cast<u32>(std::ldexp(rounded, 24));
  std::frexp(rounded, &exponent);
  return sign | (static_cast<u32>(exponent + 14) << 10) |
         (static_cast<u32>(std::ldexp(rounded, 11 - exponent)) & 0x3ffu);
}
inline u32 pack_f16(float low, float high) {
  return f16_bits(low) | (f16_bits(high) << 16);
}
inline float f16_low_to_float(u32 pair) {
  return f16_value(pair & 0xffffu);
}
inline float f16_high_to_float(u32 pair) {
  return f16_value(pair >> 16);
}
inline u32 multiply_f16(u32 a, u32 b) {
  return pack_f16(f16_low_to_float(a) * f16_low_to_float(b),
                  f16_high_to_float(a) * f16_high_to_float(b));
}
inline float exp2_approx(float x) {
  return std::exp2(x);
}

}  // namespace ingot::kernels
