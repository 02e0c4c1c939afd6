#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/moe_prefill_problem.hpp"
#include "kernel_templates/moe_prefill_sm90.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct MoePrefillSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/moe_prefill_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/moe_prefill_sm90.params.def"
#undef PARAM
  }
  bool operator==(const MoePrefillSm90Params&) const = default;
};

/// Routed experts in FP4, many tokens, on Hopper's FP8 tensor cores; gate and up read rows that
/// expert_gather has expressed at one scale each. Device code: moe_prefill_sm90.cuh.
struct MoePrefillSm90 {
  static constexpr std::string_view kStem = "moe_prefill_sm90";
  using Params = MoePrefillSm90Params;
  using Problem = MoePrefillProblem;
  using Args = MoePrefillArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }

  static int smem_bytes(const Params& c) {
    return moe_prefill_sm90_smem_bytes(c.EXPERTS, c.TOPK, c.TOKENS, c.STAGES, c.DOWN);
  }

  static Params default_params(const Problem& problem) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.INTER = problem.inter;
    base.EXPERTS = problem.experts;
    base.TOPK = problem.topk;
    base.ROUND_EXPERTS = problem.whole_experts;
    base.DOWN = problem.down;
    return base;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params base = default_params(problem);
    return Space<Params>(base)
        .axis(&Params::STAGES, {5, 6})
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        .keep_if("a product has whole tiles", [](const Params& c) {
          return c.INTER % 128 == 0 && c.HIDDEN % MOE_PREFILL_ROWS == 0;
        });
  }

  /// One block per multiprocessor walks over the tiles.
  static cu::LaunchShape launch_shape(const Problem&, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(device.sm_count)},
            .block = {MOE_PREFILL_SM90_THREADS},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.down = false}, {.down = true}, {.inter = 256, .whole_experts = false, .down = true}};
  }
};

}  // namespace ingot::kernels
