#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/split_kv_combine.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SplitKvCombineParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/split_kv_combine.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/split_kv_combine.params.def"
#undef PARAM
  }
  bool operator==(const SplitKvCombineParams&) const = default;
};

struct SplitKvCombineProblem {
  int batch = 1;
  int heads = 64;  ///< of this rank
  int nsplit = 8;
  bool partial_bf16 = false;
  bool has_sink = true;
  bool inverse_rope = true;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [batch, heads, nsplit, partial_bf16, has_sink, inverse_rope] = self;
    visit("batch", batch);
    visit("heads", heads);
    visit("nsplit", nsplit);
    visit("partial_bf16", partial_bf16);
    visit("has_sink", has_sink);
    visit("inverse_rope", inverse_rope);
  }
};

/// Joins the partial results of split-KV attention. Device code: split_kv_combine.cuh.
struct SplitKvCombine {
  static constexpr std::string_view kStem = "split_kv_combine";
  using Params = SplitKvCombineParams;
  using Problem = SplitKvCombineProblem;
  using Args = SplitKvCombineArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.NSPLIT = problem.nsplit;
    base.PARTIAL_BF16 = problem.partial_bf16;
    base.HAS_SINK = problem.has_sink;
    base.INVERSE_ROPE = problem.inverse_rope;
    return Space<Params>(base)
        .axis(&Params::HEADS, {1, 2, 4})
        .keep_if("a block's heads divide the rank's",
                 [=](const Params& c) { return problem.heads % c.HEADS == 0; });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    return {.grid = {static_cast<unsigned>(problem.heads / c.HEADS),
                     static_cast<unsigned>(problem.batch)},
            .block = {static_cast<unsigned>(128 * c.HEADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() {
    return {{.nsplit = 8},
            {.nsplit = 20},
            {.nsplit = 2, .inverse_rope = false},
            {.nsplit = 16, .partial_bf16 = true},
            {.nsplit = 1, .has_sink = false}};
  }
};

}  // namespace ingot::kernels
