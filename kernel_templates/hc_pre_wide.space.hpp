#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/hc_pre.space.hpp"
#include "kernel_templates/hc_pre_wide.args.h"

namespace ingot::kernels {

struct HcPreWideParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/hc_pre_wide.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/hc_pre_wide.params.def"
#undef PARAM
  }
  bool operator==(const HcPreWideParams&) const = default;
};

/// Hyper-connections in front of a sublayer, of many tokens. Device code: hc_pre_wide.cuh.
struct HcPreWide {
  static constexpr std::string_view kStem = "hc_pre_wide";
  using Params = HcPreWideParams;
  using Problem = HcPreProblem;
  using Args = HcPreArgs;

  /// Below, too few blocks have all of the work: of 1,024 tokens 79 us at best, hc_pre 83 (H200).
  static constexpr int kLeastTokens = 2048;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }
  /// Whether it is made for such a problem; otherwise there is no candidate.
  static bool takes(const Problem& problem) {
    return problem.tokens >= kLeastTokens && !problem.head && problem.quantize &&
           problem.hidden % 128 == 0;
  }

  static int smem_bytes(const Params& c) {
    return hc_pre_wide_sizes(c.TOKENS, c.GROUPS, c.STAGES, c.AFTER_SUBLAYER).bytes;
  }
  static int threads(const Params& c) { return 8 * c.TOKENS * c.GROUPS; }
  static int blocks(const Problem& problem, const Params& c) {
    return (problem.tokens + c.TOKENS - 1) / c.TOKENS;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const auto fits = [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; };
    Params base;
    base.HIDDEN = problem.hidden;
    base.AFTER_SUBLAYER = problem.after_sublayer;
    // As many tokens to a block as leave most of the card some, two groups of threads, and as long
    // a ring as fits.
    base.TOKENS = 32;
    if (2 * blocks(problem, base) <= device.sm_count || !fits(base)) base.TOKENS = 16;
    base.GROUPS = 2;
    if (!fits(base)) base.GROUPS = 1;
    const auto longer = [](Params c) {
      ++c.STAGES;
      return c;
    };
    while (base.STAGES < kMostStages && fits(longer(base)))
      base = longer(base);
    base.COPY_FIRST = base.STAGES == 2;
    return Space<Params>(base)
        .axis(&Params::TOKENS, {16, 32})
        .axis(&Params::GROUPS, {1, 2, 3})
        .axis(&Params::STAGES, {2, 3, 4, 5, 6})
        .axis(&Params::COPY_FIRST, {false, true})
        .keep_if("there are many tokens", [=](const Params&) { return takes(problem); })
        .keep_if("a block has at most 512 threads",
                 [](const Params& c) { return threads(c) <= 512; })
        .keep_if("shared memory fits", fits)
        // From here on: legal, but cannot be the fastest.
        .keep_if("the ring is as long as fits, or as two blocks have room for",
                 [=](const Params& c) {
                   return c == base || c.STAGES == kMostStages || !fits(longer(c)) ||
                          (fits_twice(c, device) && !fits_twice(longer(c), device));
                 })
        .keep_if("only a short ring is worth a barrier",
                 [](const Params& c) { return c.STAGES <= 3 || !c.COPY_FIRST; })
        .keep_if("most of the card has work", [=](const Params& c) {
          return c == base || 2 * blocks(problem, c) > device.sm_count;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits&) {
    return {.grid = {static_cast<unsigned>(blocks(problem, c))},
            .block = {static_cast<unsigned>(threads(c))},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  /// DeepSeek-V4-Flash: the first sublayer, later ones; and a width that is no power of two.
  static std::vector<Problem> sample_problems() {
    return {{.tokens = 4096, .quantize = true},
            {.tokens = 4096, .after_sublayer = true, .quantize = true},
            {.hidden = 7168, .tokens = 2048, .after_sublayer = true, .quantize = true}};
  }

 private:
  static constexpr int kMostStages = 6;
  /// Two blocks on one multiprocessor, with what the card keeps of its memory for each.
  static bool fits_twice(const Params& c, const cu::DeviceLimits& device) {
    constexpr int kKept = 1024;
    return 2 * (smem_bytes(c) + kKept) <= device.smem_per_sm_bytes;
  }
};

}  // namespace ingot::kernels
