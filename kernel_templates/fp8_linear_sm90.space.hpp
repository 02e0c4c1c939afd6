#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/fp8_linear_problem.hpp"
#include "kernel_templates/fp8_linear_sm90.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct Fp8LinearSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/fp8_linear_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/fp8_linear_sm90.params.def"
#undef PARAM
  }
  bool operator==(const Fp8LinearSm90Params&) const = default;
};

/// FP8 linears on Hopper's tensor cores. Device code: fp8_linear_sm90.cuh.
struct Fp8LinearSm90 {
  static constexpr std::string_view kStem = "fp8_linear_sm90";
  using Params = Fp8LinearSm90Params;
  using Problem = Fp8LinearProblem;
  using Args = Fp8LinearArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }

  static int smem_bytes(const Problem& problem, const Params& c) {
    return fp8_linear_sm90_smem_bytes(c.TOKENS, c.STAGES,
                                      c.X_RESIDENT ? problem.split_k_tiles(c.SPLIT_K) : 0,
                                      c.SPLIT_K, c.CLUSTERED);
  }
  static cu::Dim3 grid(const Problem& problem, const Params& c, const cu::DeviceLimits& device) {
    return fp8_linear_grid(problem, c.TOKENS, c.SPLIT_K, device.sm_count);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.COLS = problem.cols;
    base.QUANTIZE = base.X_RESIDENT = problem.x_bf16;
    base = untuned_linear(
        base, problem.work(), {8, 16, 32, 64, 128}, {2, 4, 6, 8, 12}, {1, 2, 3, 4, 8},
        [=](const Params& c) { return smem_bytes(problem, c); }, device);
    base = untuned_splits(base, problem, device);
    return Space<Params>(base)
        .axis(&Params::TOKENS, {8, 16, 32, 64, 128})
        .axis(&Params::STAGES, {2, 4, 5, 6, 8, 12})
        .axis(&Params::DEPTH, {1, 2, 4})
        .axis(&Params::SPLIT_K, {1, 2, 3, 4, 5, 6, 7, 8})
        .axis(&Params::CLUSTERED, {false, true})
        .axis(&Params::MULTICAST, {false, true})
        .axis(&Params::X_RESIDENT, {false, true})
        .axis(&Params::WARM_UP, {false, true})
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
        .keep_if("started tiles lie in the ring",
                 [](const Params& c) { return c.DEPTH <= c.STAGES; })
        .keep_if("a cluster serves one purpose",
                 [](const Params& c) { return !c.CLUSTERED || !c.MULTICAST; })
        .keep_if(
            "token tiles come in pairs where they share weights",
            [=](const Params& c) { return !c.MULTICAST || problem.token_tiles(c.TOKENS) % 2 == 0; })
        .keep_if("the ring has room for what is exchanged",
                 [](const Params& c) {
                   return !(c.CLUSTERED || (splits_many(c) && !splits_halves(c))) ||
                          c.STAGES * FP8_TILE_BYTES >= c.TOKENS * 512;
                 })
        .keep_if("a cluster has 2 to 8 blocks",
                 [](const Params& c) { return !c.CLUSTERED || (c.SPLIT_K > 1 && c.SPLIT_K <= 8); })
        .keep_if("a cluster, and splits of many tokens, exchange one strip",
                 [=](const Params& c) {
                   return !(c.CLUSTERED || splits_many(c)) ||
                          static_cast<int>(grid(problem, c, device).z) == problem.strips();
                 })
        .keep_if("a loop is warmed up by many tokens, and not where they are split through L2",
                 [](const Params& c) { return !c.WARM_UP || (is_many(c) && !splits_many(c)); })
        // From here on: legal, but cannot be the fastest.
        .keep_if("no token tile is mostly padding",
                 [=](const Params& c) {
                   return c == base || c.TOKENS == 8 || c.TOKENS < 2 * problem.tokens;
                 })
        .keep_if("tokens are not cut finer than needed",
                 [=](const Params& c) {
                   // Where K is split, finer tiles make less to exchange.
                   const bool small = problem.strips() * problem.k_tiles() <= 4 * device.sm_count;
                   const int finest = small ? problem.tokens / 4 : problem.tokens / 2;
                   return c == base || c.TOKENS >= std::min(problem.tokens, std::max(finest, 16));
                 })
        .keep_if("five stages only of large tiles",
                 [=](const Params& c) { return c.STAGES != 5 || c.TOKENS == 128; })
        .keep_if("many splits only of few tokens, or in a cluster",
                 [](const Params& c) {
                   const int most = c.CLUSTERED && is_many(c) ? 1024 : 512;
                   return c.SPLIT_K * c.TOKENS <= most;
                 })
        .keep_if("odd splits only where many tokens' fill the card",
                 [=](const Params& c) {
                   const bool usual = c.SPLIT_K <= 4 || c.SPLIT_K == 8;
                   return usual ||
                          (c.CLUSTERED && is_many(c) &&
                           3 * block_count(grid(problem, c, device)) >= 2 * device.sm_count);
                 })
        .keep_if("few tiles are started at once, four by few tokens",
                 [=](const Params& c) {
                   if (c == base || c.DEPTH == 2) return true;
                   if (is_many(c)) return false;  // has no choice
                   const int tiles = block_tiles(problem, c, device);
                   return c.DEPTH == 1 ? tiles > 4
                                       : c.TOKENS <= 16 && c.STAGES >= std::min(tiles, 8);
                 })
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
        .keep_if("the input is kept where many blocks need all of it again",
                 [=](const Params& c) {
                   return c == base || !c.X_RESIDENT || c.QUANTIZE ||
                          (c.TOKENS == 128 &&
                           static_cast<int>(grid(problem, c, device).z) < problem.strips());
                 })
        .keep_if("K is split only where blocks have one strip",
                 [=](const Params& c) {
                   return c == base || c.SPLIT_K == 1 ||
                          static_cast<int>(grid(problem, c, device).z) == problem.strips();
                 })
        .keep_if("sharing weights pays",
                 [](const Params& c) { return !c.MULTICAST || c.TOKENS >= 32; })
        .keep_if("most of the card has work", [=](const Params& c) {
          return c == base || 5 * block_count(grid(problem, c, device)) > device.sm_count;
        });
  }

  /// What many tokens whose K is split run with where nobody has tuned it. Where tiles of 128
  /// tokens keep no more than half of the card busy, tiles of 64 have twice the blocks and half the
  /// sums to exchange. Two token tiles share each read of the weights: as all blocks work side by
  /// side, L2 is what they wait for.
  static Params untuned_splits(Params base, const Problem& problem,
                               const cu::DeviceLimits& device) {
    const auto blocks = [&](const Params& c) { return block_count(grid(problem, c, device)); };
    Params half = base;
    half.TOKENS = FP8_LINEAR_SM90_TOKENS_AS_M;
    if (base.TOKENS == 2 * half.TOKENS && splits_many(base) && !base.QUANTIZE &&
        2 * blocks(base) <= device.sm_count) {
      base = half;
    }
    if (!splits_many(base) || base.QUANTIZE || problem.token_tiles(base.TOKENS) == 1) return base;
    base.MULTICAST = problem.token_tiles(base.TOKENS) % 2 == 0;
    // No longer ring: 8 stages of small tiles were slower than 6.
    base.STAGES = 4;
    for (const int stages : {5, 6}) {
      Params longer = base;
      longer.STAGES = stages;
      const bool fits = stages <= problem.split_k_tiles(base.SPLIT_K) &&
                        smem_bytes(problem, longer) <= device.smem_per_block_bytes;
      if (fits && (stages != 5 || base.TOKENS == 128)) base = longer;
    }
    return base;
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = grid(problem, c, device),
            .block = {384},
            .smem_bytes = static_cast<unsigned>(smem_bytes(problem, c)),
            .cluster = {static_cast<unsigned>(c.CLUSTERED ? c.SPLIT_K : 1), c.MULTICAST ? 2U : 1U},
            .programmatic = true};
  }

  static bool is_many(const Params& c) { return c.TOKENS >= FP8_LINEAR_SM90_TOKENS_AS_M; }
  /// K is split through L2 for many tokens: another loop, of one strip (multiply_split).
  static bool splits_many(const Params& c) { return is_many(c) && c.SPLIT_K > 1 && !c.CLUSTERED; }
  /// Two such splits hand each other half of a large tile early, from registers.
  static bool splits_halves(const Params& c) {
    return splits_many(c) && c.SPLIT_K == 2 && c.TOKENS == 128;
  }
  static int block_tiles(const Problem& problem, const Params& c, const cu::DeviceLimits& device) {
    return fp8_linear_block_tiles(problem, c.SPLIT_K, grid(problem, c, device));
  }

  static i64 workspace_bytes(const Problem& problem, const Params& c) {
    return fp8_linear_workspace_bytes(problem.strips(), problem.tokens, c.TOKENS,
                                      c.CLUSTERED ? 1 : c.SPLIT_K);
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
