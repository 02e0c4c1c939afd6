#include "src/reference/rope.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "src/reference/numerics.hpp"

namespace ingot::reference {
namespace {

/// The pair whose wavelength makes `rotations` turns in the original context.
double yarn_pair(const ModelConfig& config, double base, double rotations) {
  return config.rope_dim *
         std::log(config.yarn_original_max_position / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(base));
}

void rotate_pairs(std::span<float> x, const float* cos, const float* sin, std::size_t pairs,
                  float direction) {
  float* pair = x.data() + x.size() - 2 * pairs;
  for (std::size_t i = 0; i < pairs; ++i, pair += 2) {
    const float c = cos[i];
    const float s = direction * sin[i];
    const float a = pair[0];
    const float b = pair[1];
    pair[0] = bf16_round(a * c - b * s);
    pair[1] = bf16_round(a * s + b * c);
  }
}

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& config, int ratio) {
  const double base = ratio != 0 ? config.compress_rope_theta : config.rope_theta;
  std::vector<float> frequencies(static_cast<std::size_t>(config.rope_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    // fp32 at each step, as the official table is made.
    const float exponent = 2 * static_cast<float>(i) / static_cast<float>(config.rope_dim);
    frequencies[i] = 1.0F / static_cast<float>(std::pow(base, static_cast<double>(exponent)));
  }
  if (ratio == 0) return frequencies;
  const double low = std::max(std::floor(yarn_pair(config, base, config.yarn_beta_fast)), 0.0);
  const double high =
      std::min(std::ceil(yarn_pair(config, base, config.yarn_beta_slow)), config.rope_dim - 1.0);
  const auto width = static_cast<float>(high > low ? high - low : 0.001);
  const auto factor = static_cast<float>(config.yarn_factor);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / width, 0.0F, 1.0F);
    frequencies[i] = frequencies[i] / factor * ramp + frequencies[i] * (1 - ramp);
  }
  return frequencies;
}

RopeAngles::RopeAngles(std::span<const float> frequencies, std::span<const std::int64_t> positions)
    : pairs_(frequencies.size()) {
  cos_.reserve(positions.size() * pairs_);
  sin_.reserve(positions.size() * pairs_);
  for (const std::int64_t position : positions) {
    for (const float frequency : frequencies) {
      // The angle is rounded to fp32, its cosine and sine are not fast ones.
      const double angle = static_cast<float>(position) * frequency;
      cos_.push_back(static_cast<float>(std::cos(angle)));
      sin_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void RopeAngles::rotate(std::size_t row, std::span<float> x) const {
  rotate_pairs(x, &cos_[row * pairs_], &sin_[row * pairs_], pairs_, 1.0F);
}

void RopeAngles::rotate_back(std::size_t row, std::span<float> x) const {
  rotate_pairs(x, &cos_[row * pairs_], &sin_[row * pairs_], pairs_, -1.0F);
}

}  // namespace ingot::reference
