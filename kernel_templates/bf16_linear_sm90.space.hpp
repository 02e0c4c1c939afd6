#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/bf16_linear.space.hpp"
#include "kernel_templates/bf16_linear_sm90.args.h"

namespace ingot::kernels {

struct Bf16LinearSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/bf16_linear_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/bf16_linear_sm90.params.def"
#undef PARAM
  }
  bool operator==(const Bf16LinearSm90Params&) const = default;
};

/// Linears of bf16 weights and inputs, of many tokens, on Hopper's wgmma. Device code:
/// bf16_linear_sm90.cuh.
struct Bf16LinearSm90 {
  static constexpr std::string_view kStem = "bf16_linear_sm90";
  using Params = Bf16LinearSm90Params;
  using Problem = Bf16LinearProblem;
  using Args = Bf16LinearArgs;

  static constexpr int kLeastTokens = 512;  ///< below, reading the weights is all there is
  /// Tiles of 64 tokens. Fewer leave most of the card idle, and bf16_linear's splits of K win: on
  /// an H200 16.6 us against 17.2 of 32 tiles (10.9 of 16), where of 64 tiles it took 27.8.
  static constexpr int kLeastTiles = 64;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }
  /// Whether it is made for such a problem; otherwise there is no candidate.
  static bool takes(const Problem& problem) {
    return problem.tokens >= kLeastTokens &&
           problem.work().strips * problem.work().token_tiles(64) >= kLeastTiles;
  }

  static int smem_bytes(const Params& c) { return bf16_linear_sm90_smem_bytes(c.TOKENS, c.STAGES); }
  static int tiles(const Problem& problem, const Params& c) {
    return problem.work().strips * problem.work().token_tiles(c.TOKENS);
  }
  /// What the block with the most tiles reads, in rows of weights and input.
  static int most_rows(const Problem& problem, const Params& c, const cu::DeviceLimits& device) {
    const int rounds = (tiles(problem, c) + device.sm_count - 1) / device.sm_count;
    return rounds * (BF16_TILE_ROWS + c.TOKENS);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const auto fits = [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; };
    Params base;
    base.COLS = problem.cols;
    Params smaller = base;
    smaller.TOKENS = 64;
    if (most_rows(problem, smaller, device) < most_rows(problem, base, device)) base = smaller;
    const auto longer = [](Params c) {
      c.STAGES = next_stages(c.STAGES);
      return c;
    };
    while (next_stages(base.STAGES) > base.STAGES && fits(longer(base)))
      base = longer(base);
    return Space<Params>(base)
        .axis(&Params::TOKENS, {64, 128})
        .axis(&Params::STAGES, {4, 6, 8})
        .keep_if("there are many tokens, and enough tiles",
                 [=](const Params&) { return takes(problem); })
        .keep_if("shared memory fits", fits)
        // From here on: legal, but cannot be the fastest.
        .keep_if("the ring is as long as fits",
                 [=](const Params& c) {
                   return c == base || next_stages(c.STAGES) == c.STAGES || !fits(longer(c));
                 })
        .keep_if("no block has twice the work of another choice", [=](const Params& c) {
          return c == base || most_rows(problem, c, device) < 2 * most_rows(problem, base, device);
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(std::min(tiles(problem, c), device.sm_count))},
            .block = {384},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  /// DeepSeek-V4-Flash: a CSA layer's compressors and head weights, an HCA layer's, the gate.
  static std::vector<Problem> sample_problems() {
    return {{{64, 1024, 1024, 256, 256}, 4096, 4096}, {{512, 512}, 4096, 512}, {{256}, 4096, 4096}};
  }

 private:
  static int next_stages(int stages) { return std::min(stages + 2, 8); }
};

}  // namespace ingot::kernels
