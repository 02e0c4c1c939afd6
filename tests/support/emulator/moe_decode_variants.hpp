#pragma once

#include <string>
#include <vector>

#include "tests/support/moe_experts.hpp"

namespace ingot::test::emulator {

/// One variant of moe_decode, compiled for the emulator.
struct MoeDecodeVariant {
  std::string name;
  MoeShape shape;  ///< tokens: the most of a launch
  bool round_experts = true;
  bool whole_strips = false;
  /// Runs launches on `blocks` blocks, one after the other with the same counters, workspaces and
  /// outputs poisoned before each. Throws when they differ.
  std::vector<float> (*run)(const MoeExperts& experts, int blocks, int launches,
                            std::uint64_t seed) = nullptr;
};

std::vector<MoeDecodeVariant> moe_decode_variants();

}  // namespace ingot::test::emulator
