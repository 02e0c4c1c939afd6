#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/indexer_scores_problem.hpp"
#include "kernel_templates/indexer_scores_sm90.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct IndexerScoresSm90Params {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/indexer_scores_sm90.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/indexer_scores_sm90.params.def"
#undef PARAM
  }
  bool operator==(const IndexerScoresSm90Params&) const = default;
};

/// Scores of FP4 index keys on Hopper's wgmma in e4m3. Device code: indexer_scores_sm90.cuh.
struct IndexerScoresSm90 {
  static constexpr std::string_view kStem = "indexer_scores_sm90";
  using Params = IndexerScoresSm90Params;
  using Problem = IndexerScoresProblem;
  using Args = IndexerScoresArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch == 90; }

  /// Whether the heads are an N of the mma and a page holds whole copies of keys; otherwise there
  /// is no candidate.
  static bool takes(const Problem& problem) {
    return (problem.heads == 8 || problem.heads == 16 || problem.heads == 32 ||
            problem.heads == 64) &&
           problem.page_entries % INDEX_COPY_KEYS == 0;
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HEADS = problem.heads;
    base.PAGE_ENTRIES = problem.page_entries;
    base.PAGE_BYTES = problem.page_bytes;
    base = untuned(base, problem, device);
    return Space<Params>(base)
        .axis(&Params::WARPGROUPS, {1, 2, 4, 5})
        .axis(&Params::KEY_TILES, {1, 2})
        .axis(&Params::STAGES, {4, 8, 12})
        .axis(&Params::RESIDENT, {1, 2, 4})
        .axis(&Params::ROWS, {1, 2, 4})
        .keep_if("the heads are an N of the mma and pages hold whole copies",
                 [=](const Params&) { return takes(problem); })
        .keep_if("rows that share keys are of one sequence",
                 [=](const Params& c) { return problem.rows_together % c.ROWS == 0; })
        .keep_if(
            "a multiprocessor's warpgroups fit its registers",
            [](const Params& c) { return c.WARPGROUPS * c.RESIDENT <= (c.KEY_TILES > 1 ? 4 : 5); })
        .keep_if("enough keys travel at a time",
                 [](const Params& c) {
                   return c.WARPGROUPS * c.RESIDENT * c.KEY_TILES * c.STAGES >= 16;
                 })
        .keep_if("shared memory fits", [=](const Params& c) {
          return smem_bytes(c) <= device.smem_per_block_bytes &&
                 c.RESIDENT * (smem_bytes(c) + 1024) <= device.smem_per_sm_bytes;
        });
  }

  /// What runs where nobody has tuned it, by the tiles of 64 keys of all rows: one at a time while
  /// each warpgroup has about one; then two; and two blocks to a multiprocessor, one of which
  /// multiplies while the other begins a row, once they have more than two tiles a warpgroup.
  static Params untuned(Params base, const Problem& problem, const cu::DeviceLimits& device) {
    const long long tiles = static_cast<long long>(problem.rows) * ((problem.entries + 63) / 64);
    const bool few = tiles <= 2LL * device.sm_count;
    base.WARPGROUPS = 2;
    base.KEY_TILES = few ? 1 : 2;
    base.STAGES = few ? 8 : 4;
    Params two = base;
    two.RESIDENT = 2;
    const bool fits = two.RESIDENT * (smem_bytes(two) + 1024) <= device.smem_per_sm_bytes;
    return tiles > 4LL * device.sm_count && fits ? two : base;
  }

  static int smem_bytes(const Params& c) {
    return indexer_scores_sm90_smem_bytes(c.HEADS, c.ROWS, c.WARPGROUPS, c.KEY_TILES, c.STAGES);
  }

  static cu::LaunchShape launch_shape(const Problem&, const Params& c,
                                      const cu::DeviceLimits& device) {
    return {.grid = {static_cast<unsigned>(c.RESIDENT * std::max(device.sm_count, 1))},
            .block = {static_cast<unsigned>(128 * c.WARPGROUPS + 32)},
            .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{},
            {.rows = 4, .rows_together = 4},
            {.heads = 8},
            {.page_entries = 256, .page_bytes = 256 * 68}};
  }
};

}  // namespace ingot::kernels
