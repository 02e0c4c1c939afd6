#include "src/reference/numerics.hpp"

#include <algorithm>
#include <cstddef>

namespace ingot::reference {
namespace {

/// Largest magnitude of the group, not below `floor`. NaN elements are passed over: they stay NaN
/// in the quantised row, whatever the scale.
float amax(std::span<const float> group, float floor) {
  float a = floor;
  for (const float x : group)
    a = std::max(a, std::fabs(x));
  return a;
}

template <class Round>
void quantize_group(std::span<float> group, int exponent, Round round) {
  const float scale = pow2(exponent);
  const float inverse = pow2(-exponent);  // powers of two: x · 2^-e is x / 2^e to the bit
  for (float& x : group)
    x = round(x * inverse) * scale;
}

}  // namespace

std::uint8_t e4m3_bits(float x) {
  if (x != x) return 0x7F;
  const float value = e4m3_round(x);
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 24) & 0x80;
  const float a = std::fabs(value);
  const std::uint32_t magnitude = a < 0x1p-6F
                                      ? static_cast<std::uint32_t>(a * 0x1p9F)
                                      : (std::bit_cast<std::uint32_t>(a) - (120U << 23)) >> 20;
  return static_cast<std::uint8_t>(sign | magnitude);
}

std::uint8_t e2m1_bits(float x) {
  const float value = e2m1_round(x);
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(value) >> 28) & 8;
  const float a = std::fabs(value);
  const std::uint32_t magnitude = a < 1.0F ? static_cast<std::uint32_t>(a * 2.0F)
                                           : (std::bit_cast<std::uint32_t>(a) - (126U << 23)) >> 22;
  return static_cast<std::uint8_t>(sign | magnitude);
}

int act_quant_exponent(std::span<const float> group) {
  // The largest finite amax has exponent 127 - 8; infinity gives 128, clamped to a finite scale:
  // its quotient is infinite all the same and clamps to 448.
  return std::min(ceil_log2(amax(group, 1e-4F) * (1.0F / 448.0F)), 127);
}

int fp4_quant_exponent(std::span<const float> group) {
  return std::min(ceil_log2(amax(group, 6 * 0x1p-126F) * (1.0F / 6.0F)), 127);
}

void act_quant(std::span<float> row, int group) {
  const auto width = static_cast<std::size_t>(group);
  for (std::size_t i = 0; i < row.size(); i += width) {
    const auto part = row.subspan(i, width);
    quantize_group(part, act_quant_exponent(part), e4m3_round);
  }
}

void fp4_quant(std::span<float> row) {
  for (std::size_t i = 0; i < row.size(); i += kFp4Group) {
    const auto part = row.subspan(i, kFp4Group);
    quantize_group(part, fp4_quant_exponent(part), e2m1_round);
  }
}

void act_quant_bytes(std::span<const float> row, int group, std::span<std::uint8_t> codes,
                     std::span<std::uint8_t> scales) {
  const auto width = static_cast<std::size_t>(group);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto part = row.subspan(i / width * width, width);
    const int exponent = act_quant_exponent(part);
    scales[i / width] = static_cast<std::uint8_t>(exponent + 127);
    codes[i] = e4m3_bits(row[i] * pow2(-exponent));
  }
}

void fp4_quant_bytes(std::span<const float> row, std::span<std::uint8_t> packed,
                     std::span<std::uint8_t> scales) {
  for (std::size_t i = 0; i < row.size(); i += 2) {
    const auto part = row.subspan(i / kFp4Group * kFp4Group, kFp4Group);
    const int exponent = fp4_quant_exponent(part);
    scales[i / kFp4Group] = static_cast<std::uint8_t>(exponent + 127);
    const float inverse = pow2(-exponent);
    const int low = e2m1_bits(row[i] * inverse);
    const int high = e2m1_bits(row[i + 1] * inverse);
    packed[i / 2] = static_cast<std::uint8_t>(low | (high << 4));
  }
}

}  // namespace ingot::reference
