#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/fp8_linear_problem.hpp"
#include "kernel_templates/fp8_linear_wide_sm90.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct Fp8LinearWideSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/fp8_linear_wide_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/fp8_linear_wide_sm90.params.def"
#undef PARAM
  }
  bool operator==(const Fp8LinearWideSm90Params&) const = default;
};

/// FP8 linears of many tokens on Hopper's tensor cores. Device code: fp8_linear_wide_sm90.cuh.
struct Fp8LinearWideSm90 {
  static constexpr std::string_view kStem = "fp8_linear_wide_sm90";
  using Params = Fp8LinearWideSm90Params;
  using Problem = Fp8LinearProblem;
  using Args = Fp8LinearArgs;

  static constexpr int kLeastTokens = 129;  ///< below, reading the weights is all there is

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }
  /// Whether it is made for such a problem; otherwise there is no candidate.
  static bool takes(const Problem& problem) {
    return problem.tokens >= kLeastTokens && !problem.x_bf16;
  }

  static int smem_bytes(const Params& c) { return fp8_linear_wide_sm90_smem_bytes(c.STAGES); }
  static int cluster(const Params& c) { return c.MULTICAST ? 2 : 1; }
  /// Tiles of the output, those of a cluster as one.
  static int tiles(const Problem& problem, const Params& c) {
    const int token_tiles = problem.token_tiles(FP8_LINEAR_WIDE_TOKENS);
    return (token_tiles + cluster(c) - 1) / cluster(c) *
           ((problem.strips() + FP8_LINEAR_WIDE_STRIPS - 1) / FP8_LINEAR_WIDE_STRIPS);
  }
  static int rounds(const Problem& problem, const Params& c, const cu::DeviceLimits& device) {
    const int at_once = std::max(device.sm_count / cluster(c), 1);
    return (tiles(problem, c) + at_once - 1) / at_once;
  }
  /// Whether so many hundredths of the card have work, over all rounds.
  static bool fills(int percent, const Problem& problem, const Params& c,
                    const cu::DeviceLimits& device) {
    return 100 * tiles(problem, c) * cluster(c) >=
           percent * rounds(problem, c, device) * device.sm_count;
  }

  static Params untuned(const Problem& problem) {
    Params base;
    base.COLS = problem.cols;
    base.MULTICAST = problem.token_tiles(FP8_LINEAR_WIDE_TOKENS) % 2 == 0;
    return base;
  }
  /// Whether it serves such a problem where nobody has tuned it: where its large tiles leave little
  /// of the card idle it has always been the fastest, at 73 % it was not.
  static bool is_default(const Problem& problem, const cu::DeviceLimits& device) {
    return runs_on(device) && takes(problem) && fills(90, problem, untuned(problem), device);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params base = untuned(problem);
    return Space<Params>(base)
        .axis(&Params::MULTICAST, {false, true})
        .keep_if("there are many tokens", [=](const Params&) { return takes(problem); })
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        // From here on: legal, but cannot be the fastest.
        .keep_if("token tiles come in pairs where they share weights",
                 [=](const Params& c) { return c == base || !c.MULTICAST || base.MULTICAST; })
        .keep_if("half of the card has work",
                 [=](const Params& c) { return c == base || fills(50, problem, c, device); });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    const int all = tiles(problem, c), turns = rounds(problem, c, device);
    // No more clusters than finish in as many rounds.
    return {.grid = {static_cast<unsigned>((all + turns - 1) / turns * cluster(c))},
            .block = {384},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .cluster = {static_cast<unsigned>(cluster(c))},
            .programmatic = true};
  }

  static i64 workspace_bytes(const Problem&, const Params&) { return 0; }

  /// DeepSeek-V4-Flash on one card and on one of eight: wq_a with wkv, wq_b, wo_b.
  static std::vector<Problem> sample_problems() {
    return {{{1024, 512}, 4096, 4096},
            {{32768}, 1024, 256},
            {{4096}, 1024, 1024},
            {{4096}, 8192, 1024}};
  }
};

}  // namespace ingot::kernels
