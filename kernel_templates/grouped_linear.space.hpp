#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/grouped_linear_problem.hpp"

namespace ingot::kernels {

struct GroupedLinearParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/grouped_linear.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/grouped_linear.params.def"
#undef PARAM
  }
  bool operator==(const GroupedLinearParams&) const = default;
};

/// Block-diagonal linear of FP8 weights and bf16 inputs by warp-level mma. Device code:
/// grouped_linear.cuh.
struct GroupedLinear {
  static constexpr std::string_view kStem = "grouped_linear";
  using Params = GroupedLinearParams;
  using Problem = GroupedLinearProblem;
  using Args = GroupedLinearArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static constexpr int kMostGroupedTokens = 16;  ///< where a tile's columns are shared by warps

  static int smem_bytes(const Params& c) {
    return grouped_linear_smem_bytes(c.TOKENS, c.STAGES, c.K_GROUPS);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.COLS = problem.cols;
    base.BULK_COPY = device.arch >= 90;
    base.K_GROUPS = problem.tokens <= kMostGroupedTokens ? 2 : 1;
    base = untuned_linear(base, problem.work(), {8, 16, 32, 64}, {2, 3, 4, 6, 12},
                          {1, 2, 4, 6, 8, 16}, smem_bytes, device);
    return linear_space(base, problem.work(), smem_bytes, device)
        .axis(&Params::K_GROUPS, {1, 2})
        .keep_if("two groups only of few tokens", [=](const Params& c) {
          return c.K_GROUPS == 1 || c.TOKENS <= kMostGroupedTokens;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = problem.work().grid(c.TOKENS, c.SPLIT_K, device.sm_count),
            .block = {static_cast<unsigned>(256 * c.K_GROUPS)},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  static i64 workspace_bytes(const Problem& problem, const Params& c) {
    return grouped_linear_workspace_bytes(problem.work().strips, problem.tokens, c.TOKENS,
                                          c.SPLIT_K);
  }

  /// DeepSeek-V4-Flash on one card and on one of eight.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const int tokens : {1, 16, 64, 256}) {
      problems.push_back({.groups = 8, .tokens = tokens});
      problems.push_back({.groups = 1, .tokens = tokens});
    }
    return problems;
  }
};

}  // namespace ingot::kernels
