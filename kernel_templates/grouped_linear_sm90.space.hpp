#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/grouped_linear_problem.hpp"
#include "kernel_templates/grouped_linear_sm90.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct GroupedLinearSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/grouped_linear_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/grouped_linear_sm90.params.def"
#undef PARAM
  }
  bool operator==(const GroupedLinearSm90Params&) const = default;
};

/// Block-diagonal linear of FP8 weights and bf16 inputs, of many tokens, on Hopper's wgmma. Device
/// code: grouped_linear_sm90.cuh.
struct GroupedLinearSm90 {
  static constexpr std::string_view kStem = "grouped_linear_sm90";
  using Params = GroupedLinearSm90Params;
  using Problem = GroupedLinearProblem;
  using Args = GroupedLinearArgs;

  static constexpr int kLeastTokens = 512;   ///< below, reading the weights is all there is
  static constexpr int kMostColumns = 8192;  ///< a lane has the scales of two tiles

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }
  /// Whether it is made for such a problem; otherwise there is no candidate.
  static bool takes(const Problem& problem) {
    return problem.tokens >= kLeastTokens && problem.cols <= kMostColumns;
  }

  static int smem_bytes(const Params& c) {
    return grouped_linear_sm90_smem_bytes(c.TOKENS, c.W_STAGES, c.X_STAGES);
  }
  static int tiles(const Problem& problem, const Params& c) {
    return problem.work().strips * problem.work().token_tiles(c.TOKENS);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.COLS = problem.cols;
    const auto fits = [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; };
    return Space<Params>(base)
        .axis(&Params::TOKENS, {64, 128, 256})
        .axis(&Params::X_STAGES, {4, 5, 8, 10})
        .keep_if("there are many tokens", [=](const Params&) { return takes(problem); })
        .keep_if("shared memory fits", fits)
        // From here on: legal, but cannot be the fastest.
        .keep_if("the ring is as long as fits",
                 [=](const Params& c) {
                   Params longer = c;
                   longer.X_STAGES = c.X_STAGES == 5 ? 8 : 2 * c.X_STAGES;
                   return c == base || !fits(longer) || c.X_STAGES >= 8;
                 })
        .keep_if("most of the card has work", [=](const Params& c) {
          return c == base || 2 * tiles(problem, c) > device.sm_count;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(std::min(tiles(problem, c), device.sm_count))},
            .block = {384},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  /// DeepSeek-V4-Flash on one card and on one of eight.
  static std::vector<Problem> sample_problems() {
    return {{.groups = 8, .tokens = 4096}, {.groups = 1, .tokens = 512}};
  }
};

}  // namespace ingot::kernels
