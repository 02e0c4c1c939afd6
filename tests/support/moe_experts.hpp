#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ingot::test {

struct MoeShape {
  int hidden = 1024, inter = 256, experts = 32, topk = 6, tokens = 1;

  std::size_t pairs() const { return static_cast<std::size_t>(topk * tokens); }
};

enum class MoeRouting {
  uniform,
  same,        ///< all tokens choose the same experts
  leave_out,   ///< as uniform, but only among the upper half of the experts
  first_full,  ///< every token chooses expert 0, the others are uniform
};

/// Made-up routed experts with a batch of quantised inputs.
struct MoeExperts {
  MoeShape shape;
  // As a checkpoint stores them: [experts][rows][columns / 2] and [experts][rows][columns / 32].
  std::vector<std::byte> gate, up, down;
  std::vector<std::byte> gate_scales, up_scales, down_scales;
  std::vector<float> x;             ///< [tokens, hidden] what the codes stand for
  std::vector<std::uint8_t> codes;  ///< [tokens, hidden] e4m3
  std::vector<float> scales;        ///< [tokens, hidden / 128]; NaN where the group has a NaN
  std::vector<int> ids;             ///< [tokens, topk]
  std::vector<float> weights;       ///< [tokens, topk]

  std::vector<std::byte> gate_up_jobs() const;
  std::vector<std::byte> down_jobs() const;
  /// What the model defines, [tokens, hidden]: fp32 sums over a token's experts by ascending id.
  std::vector<float> reference(bool round_experts) const;
  /// Its two halves: [tokens, topk, inter] quantised activations of the chosen experts, and the
  /// sums that follow from such, for kernels whose own activations may round another way.
  std::vector<float> reference_activations() const;
  std::vector<float> reference_sums(const std::vector<float>& activations,
                                    bool round_experts) const;
};

/// @param scale_spread  powers of two over which weight scales are spread, 1: all alike
MoeExperts random_moe(const MoeShape& shape, MoeRouting routing, int scale_spread, unsigned seed);
/// Puts a NaN into one input of the token.
void poison(MoeExperts& moe, int token, int column);

struct MoeDifference {
  double relative = 0;       ///< Frobenius, rows with NaN in the reference left out
  double worst_row = 0;      ///< largest of a row
  bool nan_differs = false;  ///< NaN elsewhere than in the reference, or not there
};
MoeDifference compare_moe(const std::vector<float>& got, const std::vector<float>& expected,
                          int hidden);

}  // namespace ingot::test
