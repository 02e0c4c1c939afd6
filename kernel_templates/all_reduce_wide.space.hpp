#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/all_reduce.space.hpp"
#include "kernel_templates/all_reduce_wide.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct AllReduceWideParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/all_reduce_wide.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/all_reduce_wide.params.def"
#undef PARAM
  }
  bool operator==(const AllReduceWideParams&) const = default;
};

/// The sum of many tokens over tensor parallel ranks, in one launch. Device code:
/// all_reduce_wide.cuh. A tuning cannot run it: it takes all ranks at once.
struct AllReduceWide {
  static constexpr std::string_view kStem = "all_reduce_wide";
  using Params = AllReduceWideParams;
  using Problem = AllReduceProblem;
  using Args = AllReduceWideArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }
  /// Where ranks do not reach each other's memory it has no way.
  static bool takes(const Problem& problem) { return !problem.one_shot; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.RANKS = problem.ranks;
    base.HAS_SUMS = problem.has_sums;
    base.HAS_VALUES = problem.has_values;
    base.COPIES = problem.copies;
    base.BLOCKS = device.sm_count >= 128 ? 128 : device.sm_count >= 64 ? 64 : 32;
    return Space<Params>(base)
        .axis(&Params::THREADS, {256, 512, 1024})
        .axis(&Params::BLOCKS, {32, 64, 128})
        .keep_if("every block has a counter",
                 [](const Params& c) { return c.BLOCKS <= LINK_COUNTERS; })
        .keep_if("a block is resident on each multiprocessor",
                 [&](const Params& c) { return c.BLOCKS <= std::max(device.sm_count, 32); });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const long long vector = c.HAS_SUMS ? 4 : 8;
    const long long vectors = static_cast<long long>(problem.tokens) * problem.hidden / vector;
    const long long share = (vectors + c.RANKS - 1) / c.RANKS;
    const long long blocks = (share + c.THREADS - 1) / c.THREADS;
    return {.grid = {static_cast<unsigned>(std::min<long long>(blocks, c.BLOCKS))},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.tokens = 4096, .has_values = true},
            {.ranks = 8, .tokens = 4096, .has_sums = false, .has_values = true, .copies = 4}};
  }
};

}  // namespace ingot::kernels
