#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

/// The model's number formats and its two activation quantisers, bit-exact, round to nearest even.
/// Source: model specification sections 2.3 and 3.1. Values that have been rounded to a small
/// format are held in float: every bf16, e4m3 and e2m1 value is exact in it.
namespace ingot::reference {

// ---- bfloat16

/// bf16 bits of x; NaN stays NaN.
inline std::uint16_t bf16_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>((u >> 16) | 0x40);  // keep it quiet, keep its sign
  return static_cast<std::uint16_t>((u + ((u >> 16) & 1) + 0x7FFF) >> 16);
}

inline float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The nearest bf16 value.
inline float bf16_round(float x) {
  return bf16_value(bf16_bits(x));
}

// ---- FP8 e4m3fn: no infinities, largest value 448, bytes 0x7F and 0xFF are NaN

inline float e4m3_value(std::uint8_t byte) {
  const std::uint32_t magnitude = byte & 0x7FU;
  const float sign = (byte & 0x80U) != 0 ? -1.0F : 1.0F;
  if (magnitude == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude < 8) return sign * static_cast<float>(magnitude) * 0x1p-9F;  // denormals
  return sign * std::bit_cast<float>((magnitude << 20) + (120U << 23));      // bias 127 - 7
}

/// The nearest e4m3 value of x, clamped to ±448. NaN stays NaN, zero keeps its sign.
inline float e4m3_round(float x) {
  float a = std::fabs(x);
  if (a > 448.0F) a = 448.0F;
  if (a < 0x1p-6F) {
    a = (a + 0x1.8p14F) - 0x1.8p14F;  // floats near 1.5·2^14 are 2^-9 apart, like e4m3 denormals
  } else if (a == a) {
    const auto u = std::bit_cast<std::uint32_t>(a);
    a = std::bit_cast<float>((u + ((u >> 20) & 1) + 0x7FFFF) & 0xFFF00000U);  // 3 mantissa bits
  }
  return std::copysign(a, x);
}

/// The byte of e4m3_round(x); NaN becomes 0x7F.
std::uint8_t e4m3_bits(float x);

// ---- FP4 e2m1: ±{0, 0.5, 1, 1.5, 2, 3, 4, 6}

/// @param nibble  sign bit 3, magnitude code in bits 0 to 2
inline float e2m1_value(std::uint8_t nibble) {
  constexpr float kMagnitude[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float magnitude = kMagnitude[nibble & 7];
  return (nibble & 8) != 0 ? -magnitude : magnitude;
}

/// The nearest e2m1 value of x, clamped to ±6. NaN stays NaN, zero keeps its sign.
inline float e2m1_round(float x) {
  float a = std::fabs(x);
  if (a > 6.0F) a = 6.0F;
  if (a < 1.0F) {
    a = (a + 0x1.8p22F) - 0x1.8p22F;  // floats near 1.5·2^22 are 0.5 apart
  } else if (a == a) {
    const auto u = std::bit_cast<std::uint32_t>(a);
    a = std::bit_cast<float>((u + ((u >> 22) & 1) + 0x1FFFFF) & 0xFFC00000U);  // 1 mantissa bit
  }
  return std::copysign(a, x);
}

/// The nibble of e2m1_round(x). x is not NaN.
std::uint8_t e2m1_bits(float x);

// ---- E8M0 scales

/// 2^exponent for −149 ≤ exponent ≤ 127.
inline float pow2(int exponent) {
  return exponent >= -126 ? std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23)
                          : std::bit_cast<float>(1U << (exponent + 149));
}

/// 2^(byte − 127); byte 255 is NaN.
inline float e8m0_value(std::uint8_t byte) {
  return byte == 255 ? std::numeric_limits<float>::quiet_NaN() : pow2(byte - 127);
}

/// ceil(log2(x)) of a positive, normal x, taken from its bits.
inline int ceil_log2(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  return static_cast<int>((u >> 23) & 0xFF) - 127 + ((u & 0x7FFFFF) != 0 ? 1 : 0);
}

// ---- Activation quantisers. Each works on one row, whose length is a multiple of the group.

/// FP8 group exponent: the scale is 2^e, e = ceil(log2(max(amax, 1e-4) / 448)).
int act_quant_exponent(std::span<const float> group);
/// FP4 group exponent: the scale is 2^e, e = ceil(log2(max(amax, 6·2^-126) / 6)).
int fp4_quant_exponent(std::span<const float> group);

/// actquant and back: each group of `group` elements becomes e4m3 · 2^e, in place. Exact in bf16.
void act_quant(std::span<float> row, int group);
/// fp4quant and back, groups of 32, in place. Exact in bf16.
void fp4_quant(std::span<float> row);

/// The same as stored bytes.
/// @param codes   [row] e4m3
/// @param scales  [row / group] E8M0
void act_quant_bytes(std::span<const float> row, int group, std::span<std::uint8_t> codes,
                     std::span<std::uint8_t> scales);
/// @param packed  [row / 2] two e2m1 per byte, low nibble first
/// @param scales  [row / 32] E8M0
void fp4_quant_bytes(std::span<const float> row, std::span<std::uint8_t> packed,
                     std::span<std::uint8_t> scales);

/// Rows and columns of an FP8 weight that share a scale.
inline constexpr int kFp8Block = 128;
/// Elements of an FP4 scale group, in weights and in the indexer.
inline constexpr int kFp4Group = 32;
/// Elements that share an activation scale in front of an FP8 or FP4 linear.
inline constexpr int kActGroup = 128;
/// Elements that share a scale in a KV entry.
inline constexpr int kKvGroup = 64;

}  // namespace ingot::reference
