#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/model_config.hpp"

/// Rotary embedding of the last rope_dim dims of a vector, interleaved pairs (2i, 2i+1).
/// Source: model specification section 3.3.
namespace ingot::reference {

/// Frequencies [rope_dim / 2] of a layer: plain rope_theta for ratio 0, compress_rope_theta with
/// YaRN for the others.
std::vector<float> rope_frequencies(const ModelConfig& config, int ratio);

/// cos and sin of the fp32 products position · frequency, [positions, rope_dim / 2] each.
class RopeAngles {
 public:
  RopeAngles() = default;
  RopeAngles(std::span<const float> frequencies, std::span<const std::int64_t> positions);

  /// Rotates the last dims of x for the given row of positions; fp32, then bf16, in place.
  void rotate(std::size_t row, std::span<float> x) const;
  /// The same by the negative angle.
  void rotate_back(std::size_t row, std::span<float> x) const;

 private:
  std::size_t pairs_ = 0;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

}  // namespace ingot::reference
