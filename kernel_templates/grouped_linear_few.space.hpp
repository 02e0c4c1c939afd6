#pragma once

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

#include "kernel_templates/grouped_linear_few.args.h"
#include "kernel_templates/grouped_linear_problem.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct GroupedLinearFewParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/grouped_linear_few.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/grouped_linear_few.params.def"
#undef PARAM
  }
  bool operator==(const GroupedLinearFewParams&) const = default;
};

/// Block-diagonal linear of FP8 weights and bf16 inputs, of few tokens: every warp streams weights
/// of its own. Device code: grouped_linear_few.cuh.
struct GroupedLinearFew {
  static constexpr std::string_view kStem = "grouped_linear_few";
  using Params = GroupedLinearFewParams;
  using Problem = GroupedLinearProblem;
  using Args = GroupedLinearArgs;

  static constexpr int kMostTokens = 16;     ///< above, a block's input leaves no room for a ring
  static constexpr int kMostColumns = 4096;  ///< all of a token's are in a block
  static constexpr int kFewestRows = 16;     ///< of a block: a warp's

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 90; }
  /// Whether it is made for such a problem; otherwise there is no candidate.
  static bool takes(const Problem& problem, const cu::DeviceLimits& device) {
    return problem.tokens <= kMostTokens && problem.cols <= kMostColumns &&
           smem_bytes(base(problem, device)) <= device.smem_per_block_bytes;
  }

  /// Whether this family, not grouped_linear, is the default without tuning: where what its blocks
  /// read of the input is less than the weights. (Measured on an H200: half of them, 13.8 us for
  /// 16.1; as much, 10.6 for 9.7.)
  static bool is_default(const Problem& problem, const cu::DeviceLimits& device) {
    if (!runs_on(device) || !takes(problem, device)) return false;
    const Params c = untuned(problem, device);
    return c.TOKENS >= problem.tokens &&
           2 * blocks(problem, c) * problem.tokens < problem.groups * problem.group_rows;
  }

  static int smem_bytes(const Params& c) {
    return grouped_linear_few_smem_bytes(c.COLS, c.TOKENS, c.STAGES, c.WARPS);
  }
  static int blocks(const Problem& problem, const Params& c) {
    return problem.groups * problem.group_rows / c.ROWS * problem.work().token_tiles(c.TOKENS);
  }
  /// Pieces that one warp goes through.
  static int pieces(const Params& c) {
    const int groups = c.WARPS * kFewestRows / c.ROWS;
    return (c.COLS / FP8_TILE + groups - 1) / groups;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params chosen = untuned(problem, device);
    const auto fits = [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; };
    const auto at_once = [=](const Params& c) {
      const int by_memory = device.smem_per_sm_bytes / (smem_bytes(c) + kBlockOverhead);
      return device.sm_count * std::min(by_memory, device.threads_per_sm / (32 * c.WARPS));
    };
    return Space<Params>(chosen)
        .axis(&Params::TOKENS, {1, 2, 4, 8, 16})
        .axis(&Params::ROWS, {16, 32, 64, 128})
        .axis(&Params::STAGES, {2, 3, 4, 5, 6, 8})
        .axis(&Params::WARPS, {8, 16})
        .keep_if("there are few tokens", [=](const Params&) { return takes(problem, device); })
        .keep_if("shared memory fits", fits)
        .keep_if("a lane has the scale of a tile", [](const Params& c) { return pieces(c) <= 32; })
        // From here on: legal, but cannot be the fastest.
        .keep_if("the token tile is the widest that the tokens fill",
                 [=](const Params& c) { return c.TOKENS == chosen.TOKENS; })
        .keep_if("the ring is not longer than a warp's work",
                 [=](const Params& c) { return c == chosen || c.STAGES <= std::max(pieces(c), 2); })
        .keep_if("the ring holds a warp's work, or as much as fits",
                 [=](const Params& c) {
                   Params longer = c;
                   longer.STAGES += c.STAGES < 6 ? 1 : 2;
                   return c == chosen || c.STAGES >= pieces(c) || c.STAGES == 8 ||
                          at_once(longer) < std::min(at_once(c), blocks(problem, c));
                 })
        .keep_if("all blocks run at the same time",
                 [=](const Params& c) {
                   return c == chosen || c.ROWS == FP8_TILE || blocks(problem, c) <= at_once(c);
                 })
        .keep_if("most of the card has work", [=](const Params& c) {
          return c == chosen || 3 * blocks(problem, c) > device.sm_count;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits&) {
    return {.grid = {static_cast<unsigned>(problem.groups * problem.group_rows / c.ROWS),
                     static_cast<unsigned>(problem.work().token_tiles(c.TOKENS))},
            .block = {static_cast<unsigned>(32 * c.WARPS)},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  /// DeepSeek-V4-Flash on one card and on one of eight.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const int tokens : {1, 4, 16}) {
      problems.push_back({.groups = 8, .tokens = tokens});
      problems.push_back({.groups = 1, .tokens = tokens});
    }
    return problems;
  }

 private:
  static constexpr int kBlockOverhead = 1024;  // bytes of shared memory that a block takes besides

  /// The widest token tile that the tokens fill and that fits, in the least of the rest.
  static Params base(const Problem& problem, const cu::DeviceLimits& device) {
    Params c;
    c.COLS = problem.cols;
    c.STAGES = 2;
    c.WARPS = 8;
    c.TOKENS = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(problem.tokens, 1))));
    while (c.TOKENS > 1 && smem_bytes(c) > device.smem_per_block_bytes)
      c.TOKENS /= 2;
    return c;
  }
  /// The fewest rows of which all blocks run at once, one to a multiprocessor; as many warps as
  /// fit, and rings as long as they are useful or fit: their copies start before the launch's turn.
  static Params untuned(const Problem& problem, const cu::DeviceLimits& device) {
    Params c = base(problem, device);
    const auto fits = [&](const Params& of) {
      return smem_bytes(of) <= device.smem_per_block_bytes;
    };
    c.ROWS = FP8_TILE;
    for (Params finer = c; finer.ROWS >= kFewestRows; finer.ROWS /= 2)
      if (blocks(problem, finer) <= device.sm_count) c.ROWS = finer.ROWS;
    Params wider = c;
    wider.WARPS = 16;
    if (fits(wider)) c.WARPS = 16;
    for (const int stages : {3, 4, 5, 6, 8}) {
      Params longer = c;
      longer.STAGES = stages;
      if (stages <= pieces(c) && fits(longer)) c.STAGES = stages;
    }
    return c;
  }
};

}  // namespace ingot::kernels
