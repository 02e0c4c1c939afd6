#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/indexer_scores_problem.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct IndexerScoresParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/indexer_scores.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/indexer_scores.params.def"
#undef PARAM
  }
  bool operator==(const IndexerScoresParams&) const = default;
};

/// Scores of FP4 index keys on mma.sync in f16. Device code: indexer_scores.cuh.
struct IndexerScores {
  static constexpr std::string_view kStem = "indexer_scores";
  using Params = IndexerScoresParams;
  using Problem = IndexerScoresProblem;
  using Args = IndexerScoresArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HEADS = problem.heads;
    base.PAGE_ENTRIES = problem.page_entries;
    base.PAGE_BYTES = problem.page_bytes;
    return Space<Params>(base)
        .axis(&Params::WARPS, {4, 8})
        .axis(&Params::KEY_TILES, {1, 2, 4})
        .axis(&Params::RESIDENT, {1, 2, 3, 4})
        .axis(&Params::ROWS, {1, 2, 4})
        .keep_if("rows that share keys are of one sequence",
                 [=](const Params& c) { return problem.rows_together % c.ROWS == 0; })
        .keep_if("a multiprocessor's warps fit its registers",
                 [](const Params& c) {
                   const int warps = c.WARPS * c.RESIDENT;
                   return warps <= 16 && 32 * warps * registers(c) <= 65536;
                 })
        .keep_if("four key tiles leave no registers to several rows",
                 [](const Params& c) { return c.KEY_TILES < 4 || c.ROWS == 1; })
        .keep_if("enough keys travel at a time",
                 [](const Params& c) { return c.WARPS * c.RESIDENT * c.KEY_TILES >= 16; })
        .keep_if("shared memory fits", [=](const Params& c) {
          return smem_bytes(c) <= device.smem_per_block_bytes &&
                 c.RESIDENT * (smem_bytes(c) + 1024) <= device.smem_per_sm_bytes;
        });
  }

  /// Of a thread, seen: with fewer some cards' compilers spill.
  static int registers(const Params& c) {
    if (c.KEY_TILES == 1) return 104;
    if (c.KEY_TILES == 4) return 255;
    return c.ROWS > 1 ? 168 : c.WARPS > 4 ? 144 : 128;
  }
  static int smem_bytes(const Params& c) { return indexer_scores_smem_bytes(c.HEADS, c.ROWS); }

  static cu::LaunchShape launch_shape(const Problem&, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(c.RESIDENT * std::max(device.sm_count, 1))},
            .block = {static_cast<unsigned>(32 * c.WARPS)},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  /// All heads on each rank and an eighth of them; drafts of four tokens; pages of 256.
  static std::vector<Problem> sample_problems() {
    return {{},
            {.rows = 4, .rows_together = 4},
            {.heads = 8},
            {.page_entries = 256, .page_bytes = 256 * 68}};
  }
};

}  // namespace ingot::kernels
