#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "src/reference/numerics.hpp"
#include "tests/support/device_data.hpp"

/// What checks of kernels against the reference share.
namespace ingot::test {

inline constexpr std::uint16_t kPoisonBf16 = 0xfff1;  // a NaN that no kernel writes
inline constexpr float kPoisonFloat = -77.0F;
inline constexpr std::size_t kGuard = 64;  // elements behind an output

inline std::vector<float> random_floats(std::size_t count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& v : values)
    v = normal(random);
  return values;
}

inline std::vector<float> bf16_values(const std::vector<std::uint16_t>& bits) {
  std::vector<float> values;
  for (const auto b : bits)
    values.push_back(reference::bf16_value(b));
  return values;
}

/// Largest distance in units of the last place; NaN only where NaN is wanted. Every wanted element
/// must have been written, and the poison behind them be whole.
/// @param noise  differences up to it count as none: where terms of size 1 cancel, what is left has
///               no more digits than they had
inline int compare_bf16(const std::vector<std::uint16_t>& got, const std::vector<float>& wanted,
                        float noise = 0) {
  int worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] == kPoisonBf16) FAIL("not written: element " << i);
    if (std::fabs(reference::bf16_value(got[i]) - reference::bf16_round(wanted[i])) <= noise)
      continue;
    worst = std::max(worst, bf16_distance(got[i], reference::bf16_bits(wanted[i])));
  }
  for (std::size_t i = wanted.size(); i < got.size(); ++i)
    REQUIRE(got[i] == kPoisonBf16);
  return worst;
}

/// The same for fp32, relative to each element or to `scale`, whichever is larger.
inline void compare_floats(const std::vector<float>& got, const std::vector<float>& wanted,
                           float relative, float scale = 1e-9F) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool both_nan = wanted[i] != wanted[i] && got[i] != got[i];
    const bool same = both_nan || got[i] == wanted[i];
    if (same || std::fabs(got[i] - wanted[i]) <= relative * std::max(std::fabs(wanted[i]), scale))
      continue;
    FAIL("element " << i << ": " << got[i] << " instead of " << wanted[i]);
  }
  for (std::size_t i = wanted.size(); i < got.size(); ++i)
    REQUIRE(got[i] == kPoisonFloat);
}

}  // namespace ingot::test
