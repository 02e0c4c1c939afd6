#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/swiglu_quant.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct SwigluQuantParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/swiglu_quant.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/swiglu_quant.params.def"
#undef PARAM
  }
  bool operator==(const SwigluQuantParams&) const = default;
};

struct SwigluQuantProblem {
  int inter = 2048;  ///< channels of the rank, a multiple of 128
  int tokens = 1;    ///< of a launch: of the batch bucket, not a parameter of the code

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [inter, tokens] = self;
    visit("inter", inter);
    visit("tokens", tokens);
  }
};

/// The shared expert's activation, quantised for its down linear. Device code: swiglu_quant.cuh.
struct SwigluQuant {
  static constexpr std::string_view kStem = "swiglu_quant";
  using Params = SwigluQuantParams;
  using Problem = SwigluQuantProblem;
  using Args = SwigluQuantArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem&, const cu::DeviceLimits&) {
    return Space<Params>(Params{}).axis(&Params::THREADS, {32, 64, 128, 256, 512});
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const int groups = problem.tokens * (problem.inter / 128), per_block = c.THREADS / 16;
    return {.grid = {static_cast<unsigned>((groups + per_block - 1) / per_block)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{.inter = 2048}, {.inter = 256}}; }
};

}  // namespace ingot::kernels
