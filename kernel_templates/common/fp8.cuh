#pragma once
// FP8 e4m3 and ue8m0 arithmetic, and the activation quantiser's rounding points.
#include "common/bf16.cuh"
#include "common/types.cuh"

namespace ingot::kernels::fp8 {

// 2^(byte - 127) for a ue8m0 byte; 255 (NaN in the format) never comes out of a loader.
__forceinline__ float ue8m0_value(u32 byte) {
  return __uint_as_float(byte == 0 ? 0x00400000u : byte << 23);
}

// Exponent of the scale of a group whose largest magnitude is `amax` (NaN elements passed over):
// ceil(log2(max(amax, 1e-4) / 448)), taken from the bits. An infinite amax gives the largest
// finite scale, as the reference does. Source: model specification section 3.1.
__forceinline__ int scale_exponent(float amax) {
  const u32 bits = __float_as_uint(fmaxf(amax, 1e-4f) * (1.0f / 448.0f));
  return min(static_cast<int>(bits >> 23) - 127 + ((bits & 0x7fffffu) != 0 ? 1 : 0), 127);
}
// 2^exponent, -126 <= exponent <= 127.
__forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<u32>(exponent + 127) << 23);
}
// 2^-exponent for a scale's exponent, which is at most 127: 2^-127 is a denormal.
__forceinline__ float inverse_power_of_two(int exponent) {
  return __uint_as_float(exponent == 127 ? 0x00400000u : static_cast<u32>(127 - exponent) << 23);
}

// Two floats to e4m3 bytes, round to nearest even, clamped to +-448 (infinity too); NaN stays NaN.
// Low byte: `low`.
__forceinline__ u32 from_floats(float low, float high) {
#if __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  const auto one = [](float x) {
    const u32 sign = (__float_as_uint(x) >> 24) & 0x80u;
    float a = fabsf(x);
    if (a != a) return 0x7fu;
    a = fminf(a, 448.0f);
    if (a < 0x1p-6f) {  // denormals are steps of 2^-9; fp32 near 1.5 * 2^14 has the same step
      a = (a + 0x1.8p14f) - 0x1.8p14f;
      return sign | static_cast<u32>(a * 512.0f);
    }
    const u32 u = __float_as_uint(a);
    return sign | ((u + ((u >> 20) & 1) + 0x7ffffu - (120u << 23)) >> 20);
  };
  return one(low) | (one(high) << 8);
#endif
}

// Two e4m3 bytes (the low half of `pair`) to two f16. Exact, up to the common factor below.
// Before sm_89 there is no such instruction: bits are shifted into place, which leaves out the
// difference of the two exponent biases (kF16Factor). NaN is not kept by the shift; groups that
// hold one carry a NaN scale instead.
#if __CUDA_ARCH__ >= 890
constexpr float kF16Factor = 1.0f;
__forceinline__ u32 to_f16(u32 pair) {
  u32 result;
  asm("{.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %1;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;}"
      : "=r"(result)
      : "r"(pair));
  return result;
}
__forceinline__ u32 high_to_f16(u32 word) {
  u32 result;
  asm("{.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %1;\n"
      "cvt.rn.f16x2.e4m3x2 %0, high;}"
      : "=r"(result)
      : "r"(word));
  return result;
}
#else
constexpr float kF16Factor = 256.0f;  // f16 value = e4m3 value * 2^-8
__forceinline__ u32 spread_to_f16(u32 spread) {
  return ((spread & 0x00800080u) << 8) | ((spread & 0x007f007fu) << 7);
}
__forceinline__ u32 to_f16(u32 pair) {
  return spread_to_f16(__byte_perm(pair, 0, 0x4140));
}
__forceinline__ u32 high_to_f16(u32 word) {
  return spread_to_f16(__byte_perm(word, 0, 0x4342));
}
#endif

// Largest magnitude of eight bf16 values as fp32 bits; above kInfinityBits when one is NaN.
constexpr u32 kInfinityBits = 0x7f800000u;
__forceinline__ u32 largest_magnitude_bits(uint4 eight) {
  u32 a = 0;
  const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a = max(a, max((words[i] << 16) & 0x7fffffffu, words[i] & 0x7fff0000u));
  return a;
}
// The same as a number; NaN elements are passed over (all NaN: 0).
__forceinline__ float largest_magnitude(uint4 eight) {
  float a = 0.0f;
  const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a = fmaxf(a, fmaxf(fabsf(low_to_float(words[i])), fabsf(high_to_float(words[i]))));
  return a;
}
// Eight bf16 values times `factor`, as e4m3 bytes.
__forceinline__ uint2 quantize(uint4 eight, float factor) {
  const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
  u32 halves[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    halves[i] = from_floats(low_to_float(words[i]) * factor, high_to_float(words[i]) * factor);
  return make_uint2(halves[0] | (halves[1] << 16), halves[2] | (halves[3] << 16));
}

// One activation group of 128: half a warp, eight bf16 values a lane. A group that holds NaN gets
// a NaN scale, which reaches every output of its token and survives conversions of the codes.
struct Quantized {
  uint2 codes;
  float scale;
};
__forceinline__ Quantized quantize_group(uint4 eight) {
  u32 bits = largest_magnitude_bits(eight);
#pragma unroll
  for (int lanes = 8; lanes > 0; lanes /= 2)
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, lanes));
  const int exponent = scale_exponent(__uint_as_float(bits));
  return {quantize(eight, inverse_power_of_two(exponent)),
          bits > kInfinityBits ? __uint_as_float(0x7fffffffu) : power_of_two(exponent)};
}

}  // namespace ingot::kernels::fp8
