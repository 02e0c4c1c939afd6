#pragma once

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

#include "kernel_templates/hc_pre.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct HcPreParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/hc_pre.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/hc_pre.params.def"
#undef PARAM
  }
  bool operator==(const HcPreParams&) const = default;
};

struct HcPreProblem {
  int hidden = 4096;            ///< channels of a stream, a multiple of 16
  int tokens = 1;               ///< the batch bucket
  bool head = false;            ///< in front of the final norm
  bool after_sublayer = false;  ///< the sublayer's output before comes in, new streams go out
  bool quantize = false;        ///< act_quant's tiles too

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, tokens, head, after_sublayer, quantize] = self;
    visit("hidden", hidden);
    visit("tokens", tokens);
    visit("head", head);
    visit("after_sublayer", after_sublayer);
    visit("quantize", quantize);
  }
};

/// Hyper-connections in front of a sublayer or of the final norm, one launch. Device code:
/// hc_pre.cuh.
struct HcPre {
  static constexpr std::string_view kStem = "hc_pre";
  using Params = HcPreParams;
  using Problem = HcPreProblem;
  using Args = HcPreArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  /// Chunks of channels that one warp multiplies.
  static int warp_chunks(const Params& c) {
    const int chunks = c.HIDDEN / (4 * c.LANE_CHANNELS), warps = c.SPLIT_K * c.WARPS;
    return (chunks + warps - 1) / warps;
  }

  static HcPreSizes sizes(const Params& c) { return hc_pre_sizes(c.WARPS, c.HEAD, c.TILE_TOKENS); }
  /// Every finisher has groups of channels, and there are whole teams of them.
  static bool whole_teams(const Params& c) {
    const int groups = hc_pre_groups(c.HIDDEN), each = (groups + c.FINISHERS - 1) / c.FINISHERS;
    return c.SPLIT_K % c.FINISHERS == 0 && (c.FINISHERS - 1) * each < groups;
  }
  /// Teams as large as leave about two tokens to each; what ran fastest on an H200 with 64 splits.
  static int usual_finishers(int tokens) {
    return tokens <= 8 ? 8 : tokens <= 32 ? 4 : tokens <= 64 ? 2 : 1;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.HEAD = problem.head;
    base.AFTER_SUBLAYER = problem.after_sublayer;
    base.QUANTIZE = problem.quantize;
    // As many blocks as have work, or as the card holds at once.
    const int most = std::min({base.SPLIT_K, device.sm_count, problem.hidden / 64});
    base.SPLIT_K = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(most, 1))));
    base.TILE_TOKENS = problem.tokens <= 8 ? 8 : HC_TOKENS;
    base.FINISHERS = usual_finishers(problem.tokens);
    while (!whole_teams(base))
      base.FINISHERS /= 2;
    const int usual = base.FINISHERS;
    return Space<Params>(base)
        .axis(&Params::SPLIT_K, {16, 32, 64, 128})
        .axis(&Params::WARPS, {4, 8})
        .axis(&Params::LANE_CHANNELS, {2, 4})
        .axis(&Params::TILE_TOKENS, {8, HC_TOKENS})
        .axis(&Params::FINISHERS, {1, 2, 4, 8})
        .keep_if("finishers come in whole teams, each with channels", whole_teams)
        .keep_if("splits run at the same time",
                 [=](const Params& c) { return c.SPLIT_K <= device.sm_count; })
        .keep_if("a block fits on a multiprocessor",
                 [=](const Params& c) { return sizes(c).bytes <= device.smem_per_block_bytes; })
        // From here on: legal, but cannot be the fastest.
        .keep_if("weights stay in registers",
                 [=](const Params& c) { return c == base || warp_chunks(c) == 1; })
        .keep_if(
            "a thread's share of a token stays in registers",
            [=](const Params& c) { return c == base || c.HIDDEN <= 1024 * c.WARPS * c.FINISHERS; })
        .keep_if("nine warps have no registers for four channels to a lane",
                 [](const Params& c) { return c.LANE_CHANNELS == 2 || c.WARPS == 4; })
        .keep_if("tiles are as long as there are tokens for",
                 [=](const Params& c) {
                   return problem.tokens <= 8    ? c.TILE_TOKENS == 8
                          : problem.tokens <= 16 ? true
                                                 : c.TILE_TOKENS == HC_TOKENS;
                 })
        .keep_if(
            "teams are about as large as there are blocks for",
            [=](const Params& c) { return c.FINISHERS <= 2 * usual && 2 * c.FINISHERS >= usual; })
        .keep_if("most warps have channels", [=](const Params& c) {
          return c == base || c.SPLIT_K * c.WARPS * 4 * c.LANE_CHANNELS < 2 * c.HIDDEN;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    const int tiles = (problem.tokens + c.TILE_TOKENS - 1) / c.TILE_TOKENS;
    const int groups = std::clamp(device.sm_count / c.SPLIT_K, 1, tiles);
    return {.grid = {static_cast<unsigned>(c.SPLIT_K), static_cast<unsigned>(groups)},
            .block = {static_cast<unsigned>(32 * c.WARPS + (c.HEAD ? 0 : 32))},
            .smem_bytes = static_cast<unsigned>(sizes(c).bytes),
            .programmatic = true};
  }

  static i64 workspace_bytes(const Problem& problem, const Params& c) {
    return hc_pre_workspace_bytes(problem.tokens, c.HIDDEN, c.SPLIT_K, c.FINISHERS, c.HEAD);
  }

  /// DeepSeek-V4-Flash: the first sublayer, later ones in batches with teams of all sizes, the
  /// head; and a width that is no power of two.
  static std::vector<Problem> sample_problems() {
    return {{.quantize = true},
            {.after_sublayer = true, .quantize = true},
            {.tokens = 16, .after_sublayer = true, .quantize = true},
            {.tokens = 64, .after_sublayer = true, .quantize = true},
            {.tokens = 256, .after_sublayer = true, .quantize = true},
            {.head = true, .after_sublayer = true},
            {.head = true},
            {.hidden = 7168, .after_sublayer = true, .quantize = true}};
  }
};

}  // namespace ingot::kernels
