#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/moe_prefill.args.h"
#include "kernel_templates/moe_prefill_problem.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct MoePrefillParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/moe_prefill.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/moe_prefill.params.def"
#undef PARAM
  }
  bool operator==(const MoePrefillParams&) const = default;
};

/// Routed experts in FP4, many tokens, by mma.sync. Device code: moe_prefill.cuh.
struct MoePrefill {
  static constexpr std::string_view kStem = "moe_prefill";
  using Params = MoePrefillParams;
  using Problem = MoePrefillProblem;
  using Args = MoePrefillArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static int smem_bytes(const Params& c) {
    return moe_prefill_smem_bytes(c.EXPERTS, c.TOPK, c.TOKENS, c.STAGES, c.DOWN);
  }

  static Params default_params(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.INTER = problem.inter;
    base.EXPERTS = problem.experts;
    base.TOPK = problem.topk;
    base.ROUND_EXPERTS = problem.whole_experts;
    base.DOWN = problem.down;
    base.E4M3 = has_fp8_mma(device);
    base.BULK_COPY = device.arch >= 90;
    return base;
  }
  /// On sm_90 ptxas makes conversions and f16 of it, on sm_100 it is a small part of the rate.
  static bool has_fp8_mma(const cu::DeviceLimits& device) {
    return device.arch == 89 || device.arch >= 120;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params base = default_params(problem, device);
    return Space<Params>(base)
        .axis(&Params::TOKENS, {32, 64})
        .axis(&Params::STAGES, {3, 4})
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
            .block = {288},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.down = false}, {.down = true}, {.inter = 256, .whole_experts = false, .down = true}};
  }
};

}  // namespace ingot::kernels
