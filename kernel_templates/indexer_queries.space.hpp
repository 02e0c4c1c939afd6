#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/indexer_queries.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct IndexerQueriesParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/indexer_queries.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/indexer_queries.params.def"
#undef PARAM
  }
  bool operator==(const IndexerQueriesParams&) const = default;
};

struct IndexerQueriesProblem {
  int rows = 1;
  int heads = 64;  ///< index heads of this rank, a multiple of 8

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, heads] = self;
    visit("rows", rows);
    visit("heads", heads);
  }
};

/// The tail of the indexer's queries. Device code: indexer_queries.cuh.
struct IndexerQueries {
  static constexpr std::string_view kStem = "indexer_queries";
  using Params = IndexerQueriesParams;
  using Problem = IndexerQueriesProblem;
  using Args = IndexerQueriesArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.HEADS = problem.heads;
    // Few rows: as many warps as there are heads. Many: heads share what a row's warp has loaded.
    const int wanted = problem.rows <= 16 ? 1 : problem.rows < 512 ? 2 : 4;
    if (problem.heads % (base.WARPS * wanted) == 0) base.WARP_HEADS = wanted;
    return Space<Params>(base)
        .axis(&Params::WARPS, {4, 8})
        .axis(&Params::WARP_HEADS, {1, 2, 4})
        .keep_if("blocks have whole heads",
                 [](const Params& c) { return c.HEADS % (c.WARPS * c.WARP_HEADS) == 0; });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(problem.heads / (c.WARPS * c.WARP_HEADS)),
                     static_cast<unsigned>(problem.rows)},
            .block = {static_cast<unsigned>(32 * c.WARPS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{}, {.heads = 8}}; }
};

}  // namespace ingot::kernels
