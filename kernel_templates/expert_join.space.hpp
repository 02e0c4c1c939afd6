#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/expert_join.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct ExpertJoinParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/expert_join.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/expert_join.params.def"
#undef PARAM
  }
  bool operator==(const ExpertJoinParams&) const = default;
};

struct ExpertJoinProblem {
  int hidden = 4096;
  int topk = 6;
  bool whole_experts = true;  ///< experts' outputs were rounded to bf16
  int tokens = 1;             ///< of a launch: not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, topk, whole_experts, tokens] = self;
    visit("hidden", hidden);
    visit("topk", topk);
    visit("whole_experts", whole_experts);
    visit("tokens", tokens);
  }
};

/// Sums of each token's experts, by ascending id. Device code: expert_join.cuh.
struct ExpertJoin {
  static constexpr std::string_view kStem = "expert_join";
  using Params = ExpertJoinParams;
  using Problem = ExpertJoinProblem;
  using Args = ExpertJoinArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.TOPK = problem.topk;
    base.ROUND_EXPERTS = problem.whole_experts;
    return Space<Params>(base);
  }

  /// A block per token.
  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(problem.tokens)},
            .block = {static_cast<unsigned>(threads(c))},
            .programmatic = true};
  }
  static int threads(const Params& c) { return expert_join_threads(c.HIDDEN); }

  static std::vector<Problem> sample_problems() { return {{}, {.whole_experts = false}}; }
};

}  // namespace ingot::kernels
