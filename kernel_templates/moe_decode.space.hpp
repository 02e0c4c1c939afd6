#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/moe_decode.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct MoeDecodeParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/moe_decode.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/moe_decode.params.def"
#undef PARAM
  }
  bool operator==(const MoeDecodeParams&) const = default;
};

/// What the routed experts of one rank are asked to do.
struct MoeDecodeProblem {
  int batch = 1;     ///< bucket: most tokens of a launch, up to 256
  int inter = 2048;  ///< this rank's share of an expert's intermediate size
  int hidden = 4096;
  int experts = 256;
  int topk = 6;
  bool whole_experts = true;  ///< the rank has all of an expert: its output is rounded here
  bool batch_free = false;    ///< a token's sums must not depend on what else is in the batch

  int pairs() const { return topk * batch; }

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [batch, inter, hidden, experts, topk, whole_experts, batch_free] = self;
    visit("batch", batch);
    visit("inter", inter);
    visit("hidden", hidden);
    visit("experts", experts);
    visit("topk", topk);
    visit("whole_experts", whole_experts);
    visit("batch_free", batch_free);
  }
};

/// Routed experts in FP4, one launch. Device code: moe_decode.cuh.
struct MoeDecode {
  static constexpr std::string_view kStem = "moe_decode";
  using Params = MoeDecodeParams;
  using Problem = MoeDecodeProblem;
  using Args = MoeDecodeArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static int smem_bytes(const Params& c) {
    return moe_decode_smem_bytes(c.HIDDEN, c.INTER, c.EXPERTS, c.TOPK, c.BATCH, c.WARPS,
                                 c.STAGE_JOBS, c.STAGES, c.NMAX, c.X_BUFFERS, c.BARRIERS);
  }
  static int threads(const Params& c) { return 32 * (c.WARPS + c.REDUCE_WARPS + 2); }

  /// Stages of the ring that fit beside the rest, up to `most`.
  static int stages_that_fit(Params c, const cu::DeviceLimits& device, int most) {
    const int groups = c.WARPS / c.STAGE_JOBS;
    c.STAGES = most / groups * groups;
    while (c.STAGES > groups && smem_bytes(c) > device.smem_per_block_bytes)
      c.STAGES -= groups;
    return c.STAGES;
  }
  /// Whole stages beside the rest: none where even the fewest do not fit.
  static int whole_stages_that_fit(Params c, const cu::DeviceLimits& device) {
    c.STAGES = stages_that_fit(c, device, 8);
    return smem_bytes(c) <= device.smem_per_block_bytes ? c.STAGES : 0;
  }
  /// A ring that is long enough where all blocks read little: what comes earlier displaces what
  /// others wait for.
  static constexpr int kShortRingJobs = 48;
  /// Few pairs keep their inputs and, with one barrier, all activations in every block.
  static bool few(const Problem& problem) { return problem.pairs() <= 32 && problem.batch <= 8; }

  /// The default without tuning.
  static Params default_params(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.INTER = problem.inter;
    base.EXPERTS = problem.experts;
    base.TOPK = problem.topk;
    base.BATCH = problem.batch;
    base.WHOLE_STRIPS = problem.batch_free;
    base.ROUND_EXPERTS = problem.whole_experts;
    base.BULK_COPY = device.arch >= 90;
    const bool roomy = device.smem_per_block_bytes >= 160 * 1024;
    base.STAGE_JOBS = roomy && problem.hidden % 1024 == 0 ? 8 : problem.hidden % 512 == 0 ? 4 : 2;
    base.NMAX = few(problem) ? std::max(1, problem.batch) : problem.batch >= 16 && roomy ? 8 : 4;
    base.BARRIERS = few(problem) && problem.pairs() * problem.inter <= 3072 ? 1 : 2;
    base.X_BUFFERS = !few(problem) && roomy ? 2 : 1;
    const bool narrow = problem.batch > 64 && problem.inter <= 512;  // two reducing warps limit
    const bool tiny = problem.pairs() * problem.inter <= 1536;
    base.WARPS = roomy && device.arch >= 90 && !narrow && !tiny ? 16 : 8;
    base.REDUCE_WARPS = base.WARPS == 16 ? 2 : 4;
    base.STAGES = stages_that_fit(
        base, device, few(problem) ? kShortRingJobs / base.STAGE_JOBS : most_stages(problem, base));
    return base;
  }
  /// More stages than this cannot help: the bytes that keep a multiprocessor's share of the memory
  /// busy, less where a block has no more to read.
  static int most_stages(const Problem& problem, const Params& c) {
    return std::min((problem.batch == 1 ? 64 : 96) / c.STAGE_JOBS, MOE_MOST_STAGES);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    const Params base = default_params(problem, device);
    return Space<Params>(base)
        .axis(&Params::WARPS, {8, 16})
        .axis(&Params::REDUCE_WARPS, {2, 4})
        .axis(&Params::STAGE_JOBS, {4, 8})
        .axis(&Params::STAGES, {4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24})
        .axis(&Params::NMAX, {1, 2, 4, 8})
        .axis(&Params::X_BUFFERS, {1, 2})
        .axis(&Params::BARRIERS, {1, 2})
        .keep_if("shared memory fits",
                 [=](const Params& c) { return smem_bytes(c) <= device.smem_per_block_bytes; })
        .keep_if("a strip is whole stages",
                 [](const Params& c) { return c.HIDDEN % (c.STAGE_JOBS * MOE_JOB_COLS) == 0; })
        .keep_if("groups of warps have stages of their own",
                 [](const Params& c) {
                   const int groups = c.WARPS / c.STAGE_JOBS;
                   return groups <= 4 && c.STAGES >= groups && c.STAGES % groups == 0;
                 })
        .keep_if("every block can make all activations",
                 [=](const Params& c) { return c.BARRIERS == 2 || few(problem); })
        // From here on: legal, but cannot be the fastest.
        .keep_if("few tokens are one pass",
                 [=](const Params& c) {
                   return c == base ||
                          (few(problem) ? c.NMAX == base.NMAX && c.X_BUFFERS == 1 : c.NMAX >= 4);
                 })
        .keep_if("more tokens a pass only where experts have them",
                 [=](const Params& c) {
                   return c == base || c.NMAX <= 4 || problem.pairs() > problem.experts / 4;
                 })
        .keep_if("the ring is as long as fits, or short where that may do",
                 [=](const Params& c) {
                   if (c == base) return true;
                   const int fits = stages_that_fit(c, device, most_stages(problem, c));
                   return next_on_axis(c.STAGES) > fits && c.STAGES <= fits
                              ? true
                              : (few(problem) || c.NMAX == 8) &&
                                    c.STAGES * c.STAGE_JOBS == kShortRingJobs;
                 })
        .keep_if("half stages only where whole ones are few",
                 [=](const Params& c) {
                   Params whole = c;
                   whole.STAGE_JOBS = 8;
                   return c == base || c.STAGE_JOBS == 8 || c.HIDDEN % 1024 != 0 ||
                          whole_stages_that_fit(whole, device) < 4;
                 })
        // 80 registers for 22 warps, 96 for 20.
        .keep_if("sixteen warps have registers for a job each",
                 [=](const Params& c) {
                   return c.WARPS == 8 || (device.arch >= 90 && c.REDUCE_WARPS == 2);
                 })
        .keep_if("two reducing warps only where they leave registers to sixteen",
                 [=](const Params& c) { return c == base || c.WARPS == 16 || c.REDUCE_WARPS == 4; })
        .keep_if("one barrier only where all blocks make little", [=](const Params& c) {
          return c == base || c.BARRIERS == 2 || problem.pairs() * problem.inter <= 13000;
        });
  }

  /// All blocks are resident together: at most one per multiprocessor.
  static cu::LaunchShape launch_shape(const Problem&, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(device.sm_count)},
            .block = {static_cast<unsigned>(threads(c))},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }
  static i64 sum_bytes(const Problem& problem) {
    return i64{2} * problem.pairs() * 2 * problem.inter * 4;
  }
  static i64 activation_bytes(const Problem& problem) {
    return i64{1} * problem.pairs() * moe_record_bytes(problem.inter);
  }

  /// DeepSeek-V4-Flash on one card and on one of eight.
  static std::vector<Problem> sample_problems() {
    std::vector<Problem> problems;
    for (const int inter : {2048, 256})
      for (const int batch : {1, 4, 16, 64, 256})
        problems.push_back({.batch = batch, .inter = inter, .whole_experts = inter == 2048});
    problems.push_back({.batch = 16, .inter = 512, .whole_experts = false, .batch_free = true});
    return problems;
  }

 private:
  static int next_on_axis(int stages) {
    return stages >= 24 ? 25 : stages >= 12 ? stages + 2 : stages + 1;
  }
};

}  // namespace ingot::kernels
