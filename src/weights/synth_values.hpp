#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/weights/tensor_table.hpp"

namespace ingot {

/// The bytes of one tensor of a synthetic checkpoint: every byte is a function of the tensor's
/// name, the element's row-major index and a seed, so any part can be made alone, by any thread.
/// Random weights with the magnitudes of a trained model: exponents follow 1/sqrt(fan-in).
class SynthTensor {
 public:
  /// @param exponent binary exponent of the values; see synth_exponents()
  SynthTensor(const TensorSpec& spec, const ModelConfig& config, int exponent, std::uint64_t seed);

  /// Makes the elements from `first` on; `out` holds whole elements.
  void fill(std::uint64_t first, std::span<std::byte> out) const;

 private:
  TensorKind kind_;
  std::uint64_t base_;     // hash state before the index enters
  std::uint64_t experts_;  // token_experts: how many there are, a power of two
  std::uint64_t columns_;
  std::uint64_t scale_bias_;            // scales: the byte of the middle value
  std::array<std::uint32_t, 256> f32_;  // f32 and bf16: bits of the value of each hash byte
};

/// The exponent of every tensor of tensor_table(config); a scale has its weight's.
std::vector<int> synth_exponents(const ModelConfig& config, std::span<const TensorSpec> table);

}  // namespace ingot
