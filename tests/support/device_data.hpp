#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "runtime/cuda/device_buffer.hpp"

namespace ingot::test {

/// Round to nearest, ties to even; NaN stays NaN.
inline std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Normally distributed bf16 values.
inline std::vector<std::uint16_t> random_bf16(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(count);
  for (auto& value : values)
    value = bf16_bits(normal(generator));
  return values;
}

/// A device copy of `values`; complete when this returns.
template <class T>
cu::DeviceBuffer to_device(const cu::Context& context, const cu::Stream& stream,
                           const std::vector<T>& values) {
  auto buffer = cu::DeviceBuffer::allocate(context, values.size() * sizeof(T));
  buffer.copy_from_host(stream, std::as_bytes(std::span(values)));
  stream.synchronize();
  return buffer;
}

template <class T>
std::vector<T> to_host(const cu::Stream& stream, const cu::DeviceBuffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  buffer.copy_to_host(stream, std::as_writable_bytes(std::span(values)));
  stream.synchronize();
  return values;
}

/// How far two bf16 numbers lie apart, in units of the last place; NaN equals NaN only.
inline int bf16_distance(std::uint16_t a, std::uint16_t b) {
  const bool a_nan = (a & 0x7fffU) > 0x7f80U;
  const bool b_nan = (b & 0x7fffU) > 0x7f80U;
  if (a_nan || b_nan) return a_nan == b_nan ? 0 : 0x10000;
  const auto ordered = [](std::uint16_t bits) {
    return (bits & 0x8000U) != 0 ? -static_cast<int>(bits & 0x7fffU) : static_cast<int>(bits);
  };
  return std::abs(ordered(a) - ordered(b));
}

}  // namespace ingot::test
