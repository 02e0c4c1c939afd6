#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/all_gather.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct AllGatherParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/all_gather.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/all_gather.params.def"
#undef PARAM
  }
  bool operator==(const AllGatherParams&) const = default;
};

struct AllGatherProblem {
  int ranks = 2;
  int share = 64640;  ///< columns of a rank, a multiple of 4
  int rows = 1;       ///< of a launch: of the batch bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [ranks, share, rows] = self;
    visit("ranks", ranks);
    visit("share", share);
    visit("rows", rows);
  }
};

/// Logits of all tensor parallel ranks side by side. Device code: all_gather.cuh. A tuning cannot
/// run it: it takes all ranks at once.
struct AllGather {
  static constexpr std::string_view kStem = "all_gather";
  using Params = AllGatherParams;
  using Problem = AllGatherProblem;
  using Args = AllGatherArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.RANKS = problem.ranks;
    base.BLOCKS = device.sm_count >= 64 ? 64 : 32;
    return Space<Params>(base)
        .axis(&Params::THREADS, {256, 512})
        .axis(&Params::BLOCKS, {32, 64})
        .keep_if("a block is resident on each multiprocessor",
                 [&](const Params& c) { return c.BLOCKS <= std::max(device.sm_count, 32); });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const long long vectors = static_cast<long long>(problem.rows) * problem.share / 4;
    const long long blocks = (vectors + c.THREADS - 1) / c.THREADS;
    return {.grid = {static_cast<unsigned>(std::min<long long>(blocks, c.BLOCKS))},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.ranks = 2}, {.ranks = 8, .share = 16160}};
  }
};

}  // namespace ingot::kernels
