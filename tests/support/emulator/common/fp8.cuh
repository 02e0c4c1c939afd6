#pragma once
#include "common/f16.cuh"

namespace ingot::kernels::fp8 {

inline float value_of(u32 code) {
  const int exponent = static_cast<int>(code >> 3) & 15;
  const float mantissa = static_cast<float>(code & 7);
  const float value = (code & 0x7f) == 0x7f ? NAN
                      : exponent == 0       ? std::ldexp(mantissa, -9)
                                            : std::ldexp(8.0f + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -value : value;
}
// Nearest code, ties to even, clamped to +-448.
inline u32 code_of(float value) {
  const u32 sign = (__float_as_uint(value) >> 24) & 0x80u;
  if (value != value) return 0x7f;
  const float magnitude = std::fmin(std::fabs(value), 448.0f);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = max(exponent, -5);
  const float steps = std::nearbyint(std::ldexp(magnitude, 4 - exponent));  // of 2^(exponent - 4)
  const float rounded = std::ldexp(steps, exponent - 4);
  if (rounded < 0x1p-6f) return sign | static_cast<u32>(std::ldexp(rounded, 9));
  std::frexp(rounded, &exponent);
  return sign | (static_cast<u32>(exponent + 6) << 3) |
         (static_cast<u32>(std::ldexp(rounded, 4 - exponent)) & 7u);
}
inline u32 from_floats(float low, float high) {
  return code_of(low) | (code_of(high) << 8);
}
inline float ue8m0_value(u32 byte) {
  return std::ldexp(1.0f, static_cast<int>(byte) - 127);
}
inline int scale_exponent(float amax) {
  const u32 bits = __float_as_uint(std::fmax(amax, 1e-4f) * (1.0f / 448.0f));
  return min(static_cast<int>(bits >> 23) - 127 + ((bits & 0x7fffffu) != 0 ? 1 : 0), 127);
}
inline float inverse_power_of_two(int exponent) {
  return std::ldexp(1.0f, -exponent);
}
inline float power_of_two(int exponent) {
  return std::ldexp(1.0f, exponent);
}
constexpr u32 kInfinityBits = 0x7f800000u;
constexpr float kF16Factor = 1.0f;
inline u32 to_f16(u32 pair) {
  return pack_f16(value_of(pair & 0xff), value_of(pair >> 8 & 0xff));
}
inline u32 high_to_f16(u32 word) {
  return to_f16(word >> 16);
}

inline u32 largest_magnitude_bits(uint4 eight) {
  const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
  u32 largest = 0;
  for (const u32 word : words)
    largest = max(largest, max(word << 16 & 0x7fffffffu, word & 0x7fff0000u));
  return largest;
}
inline float largest_magnitude(uint4 eight) {
  const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
  float largest = 0;
  for (const u32 word : words)
    largest = std::fmax(largest, std::fmax(std::fabs(__uint_as_float(word << 16)),
                                           std::fabs(__uint_as_float(word & 0xffff0000u))));
  return largest;
}
inline uint2 quantize(uint4 eight, float factor) {
  const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
  u32 halves[4];
  for (int i = 0; i < 4; ++i)
    halves[i] = from_floats(__uint_as_float(words[i] << 16) * factor,
                            __uint_as_float(words[i] & 0xffff0000u) * factor);
  return make_uint2(halves[0] | (halves[1] << 16), halves[2] | (halves[3] << 16));
}

struct Quantized {
  uint2 codes;
  float scale;
};
// One activation group of 128: half a warp, eight bf16 values a lane.
inline Quantized quantize_group(uint4 eight) {
  const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
  u32 bits = 0;
  for (int i = 0; i < 8; ++i)
    bits = max(bits, (i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u) & 0x7fffffffu);
  for (int lanes = 8; lanes > 0; lanes /= 2)
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, lanes));
  const int exponent = scale_exponent(__uint_as_float(bits));
  return {quantize(eight, inverse_power_of_two(exponent)),
          bits > 0x7f800000u ? __uint_as_float(0x7fffffffu) : std::ldexp(1.0f, exponent)};
}

}  // namespace ingot::kernels::fp8
