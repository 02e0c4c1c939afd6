#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/hc_post.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct HcPostParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/hc_post.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/hc_post.params.def"
#undef PARAM
  }
  bool operator==(const HcPostParams&) const = default;
};

struct HcPostProblem {
  int hidden = 4096;  ///< channels of a stream, a multiple of 8
  int tokens = 1;     ///< of a launch: of the batch bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, tokens] = self;
    visit("hidden", hidden);
    visit("tokens", tokens);
  }
};

/// The streams behind a sublayer. Device code: hc_post.cuh.
struct HcPost {
  static constexpr std::string_view kStem = "hc_post";
  using Params = HcPostParams;
  using Problem = HcPostProblem;
  using Args = HcPostArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HIDDEN = problem.hidden;
    // Few tokens are dealt to the card warp by warp.
    const int warps = problem.tokens * ((problem.hidden + 127) / 128);
    if (warps <= 16 * device.sm_count) {
      base.THREADS = 32;
      if (warps > 2 * device.sm_count && problem.hidden % 8 == 0) base.VECTOR = 8;
    }
    return Space<Params>(base)
        .axis(&Params::THREADS, {32, 64, 128, 256})
        .axis(&Params::VECTOR, {2, 4, 8})
        .keep_if("a stream is whole vectors",
                 [](const Params& c) { return c.HIDDEN % c.VECTOR == 0; });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const int vectors = problem.hidden / c.VECTOR;
    return {.grid = {static_cast<unsigned>((vectors + c.THREADS - 1) / c.THREADS),
                     static_cast<unsigned>(problem.tokens)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{.hidden = 4096}}; }
};

}  // namespace ingot::kernels
