#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/expert_sum.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct ExpertSumParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/expert_sum.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/expert_sum.params.def"
#undef PARAM
  }
  bool operator==(const ExpertSumParams&) const = default;
};

struct ExpertSumProblem {
  int hidden = 4096;  ///< channels, a multiple of 8
  int tokens = 1;     ///< of a launch: of the batch bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, tokens] = self;
    visit("hidden", hidden);
    visit("tokens", tokens);
  }
};

/// Routed experts' sum plus the shared expert's output. Device code: expert_sum.cuh.
struct ExpertSum {
  static constexpr std::string_view kStem = "expert_sum";
  using Params = ExpertSumParams;
  using Problem = ExpertSumProblem;
  using Args = ExpertSumArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    // Short loads, so that more threads wait for memory; longer ones and larger blocks once threads
    // of four channels would take a quarter, or half, of what the card holds.
    const long long threads = static_cast<long long>(problem.tokens) * problem.hidden / 4;
    const long long held = static_cast<long long>(device.threads_per_sm) * device.sm_count;
    base.THREADS = 4 * threads > held ? 256 : 128;
    base.VECTOR = 2 * threads > held ? 8 : 4;
    return Space<Params>(base).axis(&Params::THREADS, {64, 128, 256}).axis(&Params::VECTOR, {4, 8});
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const long long vectors = static_cast<long long>(problem.tokens) * problem.hidden / c.VECTOR;
    return {.grid = {static_cast<unsigned>((vectors + c.THREADS - 1) / c.THREADS)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{}}; }
};

}  // namespace ingot::kernels
