#pragma once

#include <string>
#include <vector>

#include "kernel_templates/moe_decode.space.hpp"
#include "runtime/jit/variant.hpp"

namespace ingot::bench {

/// One place of the comparison: a rank's share of the experts and the tokens of a step.
struct MoeCell {
  int tensor_parallel = 1;
  int tokens = 1;
  bool same_experts = false;  ///< all tokens choose the same six, else six at random

  int inter() const { return 2048 / tensor_parallel; }
  std::string name() const;  ///< "TP8 B16"
  kernels::MoeDecodeProblem problem() const;
  /// Bytes that a step moves at least, with `experts` of them chosen.
  double bytes(double experts) const;
  /// The best that any other engine's kernels took on an H200; 0: not measured.
  double peer_us() const;
};

std::vector<MoeCell> moe_cells();

struct MoeCandidate {
  kernels::MoeDecodeParams params;
  jit::Variant variant;
  cu::LaunchShape shape;

  /// Parameters in a few characters: "w16r2 j8x9 n8 x2 b2".
  std::string brief() const;
};

/// Every candidate of a cell, the default first.
std::vector<MoeCandidate> moe_candidates(const MoeCell& cell, const cu::DeviceLimits& device);

}  // namespace ingot::bench
