#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/fp8_linear.args.h"
#include "kernel_templates/fp8_linear_problem.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct Fp8LinearParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/fp8_linear.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/fp8_linear.params.def"
#undef PARAM
  }
  bool operator==(const Fp8LinearParams&) const = default;
};

/// FP8 linears by warp-level mma, on every card. Device code: fp8_linear.cuh.
struct Fp8Linear {
  static constexpr std::string_view kStem = "fp8_linear";
  using Params = Fp8LinearParams;
  using Problem = Fp8LinearProblem;
  using Args = Fp8LinearArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }
  /// Whether FP8 mma.sync is a real instruction: on sm_90 it is emulated by conversions.
  static bool has_fp8_mma(const cu::DeviceLimits& device) {
    return device.arch == 89 || device.arch >= 100;
  }

  static int smem_bytes(const Problem& problem, const Params& c) {
    return fp8_linear_smem_bytes(c.TOKENS, c.STAGES,
                                 c.X_RESIDENT ? problem.split_k_tiles(c.SPLIT_K) : 0);
  }
  static cu::Dim3 grid(const Problem& problem, const Params& c, const cu::DeviceLimits& device) {
    return fp8_linear_grid(problem, c.TOKENS, c.SPLIT_K, device.sm_count);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.COLS = problem.cols;
    base.QUANTIZE = base.X_RESIDENT = problem.x_bf16;
    if (problem.x_bf16) base.STAGES = 2;  // leaves room for the input on every card
    base = untuned_linear(
        base, problem.work(), {8, 16, 32, 64}, {2, 3, 4, 6, 12}, {1, 2, 4, 8, 16},
        [=](const Params& c) { return smem_bytes(problem, c); }, device);
    return Space<Params>(base)
        .axis(&Params::TOKENS, {8, 16, 32, 64})
        .axis(&Params::STAGES, {2, 3, 4, 6, 12})
        .axis(&Params::SPLIT_K, {1, 2, 4, 8, 16})
        .axis(&Params::X_RESIDENT, {false, true})
        .axis(&Params::FP8_MMA, {false, true})
        .keep_if("FP8 mma is real on the card",
                 [=](const Params& c) { return !c.FP8_MMA || has_fp8_mma(device); })
        .keep_if("the input is quantised where it arrives as bf16",
                 [=](const Params& c) { return c.X_RESIDENT || !c.QUANTIZE; })
        .keep_if(
            "shared memory fits",
            [=](const Params& c) { return smem_bytes(problem, c) <= device.smem_per_block_bytes; })
        .keep_if("no split is empty",
                 [=](const Params& c) { return c.SPLIT_K <= problem.k_tiles(); })
        .keep_if("splits run at the same time",
                 [=](const Params& c) {
                   return c.SPLIT_K == 1 ||
                          block_count(grid(problem, c, device)) <= device.sm_count;
                 })
        // From here on: legal, but cannot be the fastest.
        .keep_if("no token tile is mostly padding",
                 [=](const Params& c) {
                   return c == base || c.TOKENS == 8 || c.TOKENS < 2 * problem.tokens;
                 })
        .keep_if("tokens are not cut finer than needed",
                 [=](const Params& c) {
                   return c == base ||
                          c.TOKENS >= std::min(problem.tokens, std::max(problem.tokens / 2, 16)) ||
                          c.TOKENS == 64;
                 })
        .keep_if("many splits only of few tokens",
                 [](const Params& c) { return c.SPLIT_K * c.TOKENS <= 512; })
        .keep_if("the ring is not longer than a block's work",
                 [=](const Params& c) {
                   return c == base || c.STAGES < block_tiles(problem, c, device) + 2;
                 })
        .keep_if("the ring holds a block's work, or half of what it could",
                 [=](const Params& c) {
                   Params longer = c;
                   longer.STAGES = longer.STAGES * 2 - 1;
                   return c == base || c.STAGES >= block_tiles(problem, c, device) ||
                          smem_bytes(problem, longer) > device.smem_per_block_bytes;
                 })
        .keep_if("the input is kept where a block needs it again",
                 [=](const Params& c) {
                   return c == base || !c.X_RESIDENT || c.QUANTIZE ||
                          static_cast<int>(grid(problem, c, device).z) < problem.strips();
                 })
        .keep_if("wgmma is left the many tokens on Hopper",
                 [=](const Params& c) { return c == base || device.arch != 90 || c.TOKENS <= 16; })
        .keep_if("most of the card has work", [=](const Params& c) {
          return c == base || 5 * block_count(grid(problem, c, device)) > device.sm_count;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = grid(problem, c, device),
            .block = {256},
            .smem_bytes = static_cast<unsigned>(smem_bytes(problem, c)),
            .programmatic = true};
  }

  static int block_tiles(const Problem& problem, const Params& c, const cu::DeviceLimits& device) {
    return fp8_linear_block_tiles(problem, c.SPLIT_K, grid(problem, c, device));
  }

  static i64 workspace_bytes(const Problem& problem, const Params& c) {
    return fp8_linear_workspace_bytes(problem.strips(), problem.tokens, c.TOKENS, c.SPLIT_K);
  }

  /// DeepSeek-V4-Flash on one card and on one of eight: wq_a with wkv, wq_b, wo_b.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const int tokens : {1, 16, 64, 256}) {
      for (const bool x_bf16 : {false, true}) {
        if (x_bf16 && tokens > 16) continue;  // quantising once beats doing it in every block
        problems.push_back({{1024, 512}, 4096, tokens, x_bf16});
        problems.push_back({{32768}, 1024, tokens, x_bf16});
        problems.push_back({{4096}, 1024, tokens, x_bf16});
        problems.push_back({{4096}, 8192, tokens, x_bf16});
      }
    }
    return problems;
  }
};

}  // namespace ingot::kernels
