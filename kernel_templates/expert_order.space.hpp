#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/expert_order.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct ExpertOrderParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/expert_order.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/expert_order.params.def"
#undef PARAM
  }
  bool operator==(const ExpertOrderParams&) const = default;
};

struct ExpertOrderProblem {
  int experts = 256;
  int topk = 6;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [experts, topk] = self;
    visit("experts", experts);
    visit("topk", topk);
  }
};

/// Rows of experts from the router's ids. Device code: expert_order.cuh.
struct ExpertOrder {
  static constexpr std::string_view kStem = "expert_order";
  using Params = ExpertOrderParams;
  using Problem = ExpertOrderProblem;
  using Args = ExpertOrderArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.EXPERTS = problem.experts;
    base.TOPK = problem.topk;
    return Space<Params>(base).axis(&Params::THREADS, {256, 512, 1024});
  }

  /// A block per expert.
  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(problem.experts)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .smem_bytes = static_cast<unsigned>(c.THREADS / 32 * 8),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{}}; }
};

}  // namespace ingot::kernels
