#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/expert_gather.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct ExpertGatherParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/expert_gather.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/expert_gather.params.def"
#undef PARAM
  }
  bool operator==(const ExpertGatherParams&) const = default;
};

struct ExpertGatherProblem {
  int hidden = 4096;
  int topk = 6;
  int tokens = 1;           ///< of a launch: not a parameter of the code
  bool row_scales = false;  ///< as the product that follows wants them

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, topk, tokens, row_scales] = self;
    visit("hidden", hidden);
    visit("topk", topk);
    visit("tokens", tokens);
    visit("row_scales", row_scales);
  }
};

/// Quantised inputs in the order of experts' rows. Device code: expert_gather.cuh.
struct ExpertGather {
  static constexpr std::string_view kStem = "expert_gather";
  using Params = ExpertGatherParams;
  using Problem = ExpertGatherProblem;
  using Args = ExpertGatherArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.TOPK = problem.topk;
    base.ROW_SCALES = problem.row_scales;
    return Space<Params>(base);
  }

  /// A block per token.
  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(problem.tokens)},
            .block = {static_cast<unsigned>(c.HIDDEN / 32)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{}, {.row_scales = true}}; }
};

}  // namespace ingot::kernels
