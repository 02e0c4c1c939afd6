#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/all_reduce.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct AllReduceParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/all_reduce.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/all_reduce.params.def"
#undef PARAM
  }
  bool operator==(const AllReduceParams&) const = default;
};

struct AllReduceProblem {
  int ranks = 2;
  int hidden = 4096;        ///< channels, a multiple of 8
  int tokens = 1;           ///< of a launch: of the batch bucket, not a parameter of the code
  bool has_sums = true;     ///< a rank's summand has an fp32 part
  bool has_values = false;  ///< a rank's summand has a bf16 part
  int copies = 1;           ///< times that the sum is written
  bool one_shot = false;    ///< the parts of an exchange are launched one by one

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [ranks, hidden, tokens, has_sums, has_values, copies, one_shot] = self;
    visit("ranks", ranks);
    visit("hidden", hidden);
    visit("tokens", tokens);
    visit("has_sums", has_sums);
    visit("has_values", has_values);
    visit("copies", copies);
    visit("one_shot", one_shot);
  }
};

/// The sum over tensor parallel ranks, through memory that each reaches. Device code:
/// all_reduce.cuh. A tuning cannot run it: it takes all ranks at once.
struct AllReduce {
  static constexpr std::string_view kStem = "all_reduce";
  using Params = AllReduceParams;
  using Problem = AllReduceProblem;
  using Args = AllReduceArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.RANKS = problem.ranks;
    base.HAS_SUMS = problem.has_sums;
    base.HAS_VALUES = problem.has_values;
    base.COPIES = problem.copies;
    // One shot sends (RANKS - 1) summands, two 1 1/2 summands at most but take two trips: worth it
    // where a trip is short against the bytes.
    const long long bytes =
        static_cast<long long>(problem.tokens) * problem.hidden * (problem.has_sums ? 4 : 2);
    base.SHOTS = !problem.one_shot && (problem.ranks - 1) * bytes >= (1LL << 20) ? 2 : 1;
    base.BLOCKS = bytes >= (1LL << 18) && device.sm_count >= 64 ? 64 : 32;
    return Space<Params>(base)
        .axis(&Params::SHOTS, {1, 2})
        .axis(&Params::THREADS, {256, 512})
        .axis(&Params::VECTOR, {4, 8})
        .axis(&Params::BLOCKS, {32, 64})
        .keep_if("all ranks' summands fit into registers",
                 [](const Params& c) { return c.RANKS * c.VECTOR <= 32; })
        .keep_if("parts are launched one by one",
                 [&](const Params& c) { return c.SHOTS == 1 || !problem.one_shot; })
        .keep_if("every block has a counter",
                 [](const Params& c) { return c.BLOCKS <= LINK_COUNTERS; })
        .keep_if("a block is resident on each multiprocessor",
                 [&](const Params& c) { return c.BLOCKS <= std::max(device.sm_count, 32); });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const long long vectors = static_cast<long long>(problem.tokens) * problem.hidden / c.VECTOR;
    const long long blocks = (vectors + c.THREADS - 1) / c.THREADS;
    return {.grid = {static_cast<unsigned>(std::min<long long>(blocks, c.BLOCKS))},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.has_values = true}, {.ranks = 8, .has_sums = false, .has_values = true, .copies = 4}};
  }
};

}  // namespace ingot::kernels
