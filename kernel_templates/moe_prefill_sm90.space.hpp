#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

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

/// What the routed experts of one rank are asked to do with many tokens: one of the two products.
struct MoePrefillProblem {
  int tokens = 4096;  ///< most of a launch, up to MOE_PREFILL_TOKENS
  int inter = 2048;   ///< this rank's share of an expert's intermediate size
  int hidden = 4096;
  int experts = 256;
  int topk = 6;
  bool whole_experts = true;  ///< the rank has all of an expert: its output is rounded here
  bool down = false;          ///< the second product

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [tokens, inter, hidden, experts, topk, whole_experts, down] = self;
    visit("tokens", tokens);
    visit("inter", inter);
    visit("hidden", hidden);
    visit("experts", experts);
    visit("topk", topk);
    visit("whole_experts", whole_experts);
    visit("down", down);
  }
};

/// Where the launches of one pass keep what they hand on, in one allocation (256-byte aligned).
/// In order: expert_order, expert_gather, gate/up, down, expert_join. `rows` and `y` share a place:
/// down no longer needs the inputs.
struct MoePrefillWorkspace {
  long long first = 0, count = 0, row_of = 0, row_weight = 0;  // of expert_order
  long long rows = 0, row_scale = 0;                           // of expert_gather
  long long h = 0, h_scale = 0, y = 0;
  long long bytes = 0;
  int row_pitch = 0;

  MoePrefillWorkspace(int tokens, int inter, int hidden, int experts, int topk, bool whole_experts)
      : row_pitch(expert_rows(tokens, topk, experts)) {
    const auto take = [&](long long size) {
      const long long at = bytes;
      bytes += (size + 255) / 256 * 256;
      return at;
    };
    const long long pitch = row_pitch;
    first = take(experts * 4);
    count = take(experts * 4);
    row_of = take(4LL * tokens * topk);
    row_weight = take(pitch * 4);
    row_scale = take(hidden / 128 * pitch * 4);
    h = take(inter * pitch);
    h_scale = take(inter / 128 * pitch * 4);
    rows = y = take(std::max<long long>(hidden * pitch, hidden * pitch * (whole_experts ? 2 : 4)));
  }
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
    return moe_prefill_smem_bytes(c.EXPERTS, c.TOPK, c.TOKENS, c.STAGES, c.DOWN);
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
        .axis(&Params::TOKENS, {64, 96, 112, 128})
        .axis(&Params::N_STEP, {16, 32})
        .axis(&Params::STAGES, {3, 4, 5})
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        .keep_if("a tile is whole steps of the mma's N",
                 [](const Params& c) { return c.TOKENS % c.N_STEP == 0; })
        .keep_if("a product has whole tiles", [](const Params& c) {
          return c.INTER % 128 == 0 && c.HIDDEN % MOE_PREFILL_ROWS == 0;
        });
  }

  /// One block per multiprocessor walks over the tiles.
  static cu::LaunchShape launch_shape(const Problem&, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(device.sm_count)},
            .block = {384},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const bool down : {false, true})
      for (const int inter : {2048, 256})
        problems.push_back({.inter = inter, .whole_experts = inter == 2048, .down = down});
    return problems;
  }
};

}  // namespace ingot::kernels
