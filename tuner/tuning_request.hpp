#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/jit/variant.hpp"
#include "tuner/problem.hpp"

namespace ingot {

/// One kernel of a plan for which parameters are to be chosen. Several families may serve it; their
/// candidates compete.
struct TuningRequest {
  std::vector<ProblemField> problem;
  /// Every legal candidate in the space's order, family after family. The first is the default of
  /// the first family: safe on every card, what runs without a tuning, and the reference that the
  /// others must agree with.
  std::vector<jit::Variant> candidates;
  std::map<std::string, int> rejections;  ///< candidates by the rule that rejected them

  /// Each family that has a candidate, in their order.
  std::vector<std::string> families() const;
  /// "fp8_linear+fp8_linear_sm90 cols=4096 tokens=1", for messages.
  std::string title() const;
  bool has_candidate(const jit::Variant& variant) const;
  /// 32 hexadecimal digits over all candidates and rejections: what the choice was made from.
  std::string space_digest() const;
};

}  // namespace ingot
