#pragma once

#include <array>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "kernel_templates/bf16_linear.args.h"
#include "kernel_templates/linear_grid.hpp"

namespace ingot::kernels {

struct Bf16LinearParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/bf16_linear.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/bf16_linear.params.def"
#undef PARAM
  }
  bool operator==(const Bf16LinearParams&) const = default;
};

struct Bf16LinearProblem {
  std::array<int, BF16_SEGMENTS> rows{};  ///< output columns of each weight; 0: no such weight
  int cols = 4096;                        ///< K, a multiple of 64
  int tokens = 1;                         ///< the batch bucket
  bool beside = false;  ///< runs beside other launches: none of its blocks may wait for another

  LinearWork work() const {
    int strips = 0;
    for (const int r : rows)
      strips += bf16_linear_strips(r);
    return {.strips = strips, .k_tiles = cols / BF16_TILE_COLS, .tokens = tokens};
  }

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, cols, tokens, beside] = self;
    visit("rows", rows);
    visit("cols", cols);
    visit("tokens", tokens);
    visit("beside", beside);
  }
};

/// Linears of bf16 weights and inputs by warp-level mma, fp32 or bf16 out. Device code:
/// bf16_linear.cuh.
struct Bf16Linear {
  static constexpr std::string_view kStem = "bf16_linear";
  using Params = Bf16LinearParams;
  using Problem = Bf16LinearProblem;
  using Args = Bf16LinearArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static int smem_bytes(const Problem& problem, const Params& c) {
    return bf16_linear_smem_bytes(c.TOKENS, c.STAGES,
                                  c.X_RESIDENT ? problem.work().split_k_tiles(c.SPLIT_K) : 0);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.COLS = problem.cols;
    base.LAST_SUMS = problem.beside;
    const auto bytes = [=](const Params& c) { return smem_bytes(problem, c); };
    const auto untuned = [&](std::initializer_list<int> stages) {
      return untuned_linear(base, problem.work(), {8, 16, 32, 64}, stages, {1, 2, 4, 6, 8, 16},
                            bytes, device);
    };
    if (!problem.beside)
      return linear_space(untuned({2, 3, 4, 6, 12}), problem.work(), bytes, device);
    // A ring that takes a whole multiprocessor keeps off it what this is to run beside, which no
    // measurement of the launch by itself shows: with 6 stages a step of one token is 1 % shorter
    // than with 12.
    constexpr int kMostStages = 6;
    return linear_space(untuned({2, 3, 4, kMostStages}), problem.work(), bytes, device,
                        kMostStages);
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = problem.work().grid(c.TOKENS, c.SPLIT_K, device.sm_count),
            .block = {256},
            .smem_bytes = static_cast<unsigned>(smem_bytes(problem, c)),
            .programmatic = true};
  }

  static i64 workspace_bytes(const Problem& problem, const Params& c) {
    return bf16_linear_workspace_bytes(problem.work().strips, problem.tokens, c.TOKENS, c.SPLIT_K,
                                       c.LAST_SUMS);
  }

  /// DeepSeek-V4-Flash: a CSA layer's compressors and head weights, an HCA layer's, the head on one
  /// card and on one of eight.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const int tokens : {1, 16, 64, 256}) {
      problems.push_back({{1024, 1024, 256, 256, 64}, 4096, tokens, true});
      problems.push_back({{512, 512}, 4096, tokens, true});
      problems.push_back({{129280}, 4096, tokens});
      problems.push_back({{16160}, 4096, tokens});
    }
    return problems;
  }
};

}  // namespace ingot::kernels
