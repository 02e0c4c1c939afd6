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

/// Routed experts in FP4, many tokens, on Hopper's FP8 tensor cores. Device code:
/// moe_prefill_sm90.cuh.
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
        .axis(&Params::TOKENS, {112, 128})
        .axis(&Params::N_STEP, {16, 32})
        .axis(&Params::STAGES, {4, 5})
        .axis(&Params::TURNS, {0, 1})
        .axis(&Params::MULTICAST, {false, true})
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        .keep_if("a tile is whole steps of the mma's N",
                 [](const Params& c) { return c.TOKENS % c.N_STEP == 0; })
        .keep_if(
            "a product has whole tiles",
            [](const Params& c) { return c.INTER % 128 == 0 && c.HIDDEN % MOE_PREFILL_ROWS == 0; })
        .keep_if("blocks in pairs have whole pairs of tiles",
                 [](const Params& c) {
                   return !c.MULTICAST ||
                          (c.DOWN ? c.HIDDEN / MOE_PREFILL_ROWS : c.INTER / 128) % 2 == 0;
                 })
        .keep_if("registers for fp32 outputs of a wide tile",
                 [](const Params& c) { return c.TOKENS <= 112 || !c.DOWN || c.ROUND_EXPERTS; })
        // From here on: legal, but cannot be the fastest.
        .keep_if(
            "the longest ring that fits; fine steps, and registers for turns, of the narrower tile",
            [](const Params& c) {
              return c.TOKENS == 112 ? c.N_STEP == 16 && c.STAGES == 5
                                     : c.N_STEP == 32 && c.STAGES == 4 && c.TURNS == 0;
            });
  }

  /// One block per multiprocessor walks over the tiles.
  static cu::LaunchShape launch_shape(const Problem&, const Params& c,
                                      const cu::DeviceLimits& device) {
    const int pair = c.MULTICAST ? 2 : 1;
    return {.grid = {static_cast<unsigned>(device.sm_count / pair * pair)},
            .block = {384},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .cluster = {static_cast<unsigned>(pair)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.down = false}, {.down = true}, {.inter = 256, .whole_experts = false, .down = true}};
  }
};

}  // namespace ingot::kernels
