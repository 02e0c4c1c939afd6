#pragma once

#include <bit>
#include <string_view>
#include <vector>

#include "kernel_templates/shared_expert_few.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SharedExpertFewParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/shared_expert_few.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/shared_expert_few.params.def"
#undef PARAM
  }
  bool operator==(const SharedExpertFewParams&) const = default;
};

struct SharedExpertFewProblem {
  int hidden = 4096;  ///< a multiple of 128
  int inter = 2048;   ///< channels of the rank, a multiple of 128
  int experts = 256;  ///< of the router
  int top = 6;        ///< experts of a token
  int tokens = 1;     ///< the batch bucket
  bool hash = false;  ///< experts by token id

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, inter, experts, top, tokens, hash] = self;
    visit("hidden", hidden);
    visit("inter", inter);
    visit("experts", experts);
    visit("top", top);
    visit("tokens", tokens);
    visit("hash", hash);
  }
};

/// The shared expert and the router of few tokens in one launch. Device code:
/// shared_expert_few.cuh.
struct SharedExpertFew {
  static constexpr std::string_view kStem = "shared_expert_few";
  using Params = SharedExpertFewParams;
  using Problem = SharedExpertFewProblem;
  using Args = SharedExpertFewArgs;

  /// Above, each block's own quantisation of all activations costs more than the launches saved.
  static constexpr int kMostTokens = 8;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 90; }
  /// Whether it is made for such a problem: few tokens, all weights in the card's shared memory at
  /// once, a multiprocessor for each block, and work that the blocks share evenly. Otherwise there
  /// is no candidate.
  static bool takes(const Problem& problem, const cu::DeviceLimits& device) {
    if (problem.tokens > kMostTokens || problem.hidden % FP8_TILE != 0 ||
        problem.inter % FP8_TILE != 0 || problem.inter > problem.hidden || problem.top > 32 ||
        problem.top > problem.experts)
      return false;
    const int blocks = shared_expert_few_blocks(problem.hidden);
    const int rows = problem.experts / blocks;  // of the router, in a block
    const Params c = params(problem);
    return blocks < device.sm_count && problem.experts % blocks == 0 && (rows == 1 || rows == 2) &&
           rows * c.TOKENS <= 32 &&
           problem.inter / shared_expert_few_lines(problem.hidden, problem.inter) <= blocks &&
           smem_bytes(c) <= device.smem_per_block_bytes;
  }

  static int smem_bytes(const Params& c) {
    return shared_expert_few_sizes(c.HIDDEN, c.INTER, c.EXPERTS, c.TOKENS).bytes;
  }

  /// One candidate: what there is to choose follows from the problem.
  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    return Space<Params>(params(problem)).keep_if("it is made for the problem", [=](const Params&) {
      return takes(problem, device);
    });
  }

  static cu::LaunchShape launch_shape(const Problem&, const Params& c) {
    return {.grid = {static_cast<unsigned>(shared_expert_few_blocks(c.HIDDEN) + 1)},
            .block = {32 * SHARED_FEW_WARPS},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  static i64 workspace_bytes(const Problem& problem, const Params& c) {
    return shared_expert_few_workspace_bytes(problem.tokens, c.EXPERTS, c.INTER);
  }

  /// DeepSeek-V4-Flash on one card, on one of two and of four.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const int inter : {2048, 1024, 512}) {
      for (const int tokens : {1, 2, 4, 8})
        problems.push_back({.inter = inter, .tokens = tokens});
      problems.push_back({.inter = inter, .hash = true});
    }
    return problems;
  }

 private:
  static Params params(const Problem& problem) {
    Params c;
    c.HIDDEN = problem.hidden;
    c.INTER = problem.inter;
    c.EXPERTS = problem.experts;
    c.TOP = problem.top;
    c.HASH = problem.hash;
    c.TOKENS = static_cast<int>(std::bit_ceil(static_cast<unsigned>(problem.tokens)));
    return c;
  }
};

}  // namespace ingot::kernels
