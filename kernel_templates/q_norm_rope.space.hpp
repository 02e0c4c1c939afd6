#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/q_norm_rope.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct QNormRopeParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/q_norm_rope.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/q_norm_rope.params.def"
#undef PARAM
  }
  bool operator==(const QNormRopeParams&) const = default;
};

struct QNormRopeProblem {
  int dims = 512;  ///< of a head, a multiple of 256; the last 64 are turned
  int heads = 64;  ///< of the rank
  int tokens = 1;  ///< of a launch: of the batch bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [dims, heads, tokens] = self;
    visit("dims", dims);
    visit("heads", heads);
    visit("tokens", tokens);
  }
};

/// Per-head norm and rotary embedding of the queries, in place. Device code: q_norm_rope.cuh.
struct QNormRope {
  static constexpr std::string_view kStem = "q_norm_rope";
  using Params = QNormRopeParams;
  using Problem = QNormRopeProblem;
  using Args = QNormRopeArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.DIMS = problem.dims;
    return Space<Params>(base)
        .axis(&Params::WARPS, {1, 2, 4, 8})
        .axis(&Params::HEADS_PER_WARP, {1, 2, 4})
        .keep_if("every warp has a head", [=](const Params& c) {
          return c == base || c.WARPS * c.HEADS_PER_WARP <= problem.heads;
        });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const int heads = c.WARPS * c.HEADS_PER_WARP;
    return {.grid = {static_cast<unsigned>((problem.heads + heads - 1) / heads),
                     static_cast<unsigned>(problem.tokens)},
            .block = {static_cast<unsigned>(32 * c.WARPS)},
            .smem_bytes = kQNormRopeSmemBytes,
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{.heads = 64}, {.heads = 8}}; }
};

}  // namespace ingot::kernels
