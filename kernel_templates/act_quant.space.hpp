#pragma once

#include <string_view>
#include <vector>

#include "kernel_templates/act_quant.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct ActQuantParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/act_quant.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/act_quant.params.def"
#undef PARAM
  }
  bool operator==(const ActQuantParams&) const = default;
};

struct ActQuantProblem {
  int tokens = 1;
  int cols = 4096;    ///< a multiple of 128
  bool tiled = true;  ///< the layout that fp8_linear reads, or plain rows

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [tokens, cols, tiled] = self;
    visit("tokens", tokens);
    visit("cols", cols);
    visit("tiled", tiled);
  }
};

/// Activations to e4m3 with a power-of-two scale per token and 128 columns. Device code:
/// act_quant.cuh.
struct ActQuant {
  static constexpr std::string_view kStem = "act_quant";
  using Params = ActQuantParams;
  using Problem = ActQuantProblem;
  using Args = ActQuantArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits&) {
    Params base;
    base.TILED = problem.tiled;
    // Many groups of 128 columns: fewer, larger blocks are launched sooner.
    if (static_cast<long long>(problem.tokens) * problem.cols / 128 >= 8192) base.THREADS = 512;
    return Space<Params>(base).axis(&Params::THREADS, {32, 64, 128, 256, 512});
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c) {
    const int groups = problem.tokens * (problem.cols / 128), per_block = c.THREADS / 16;
    return {.grid = {static_cast<unsigned>((groups + per_block - 1) / per_block)},
            .block = {static_cast<unsigned>(c.THREADS)},
            .programmatic = true};
  }

  static std::vector<Problem> sample_problems() { return {{.tiled = true}, {.tiled = false}}; }
};

}  // namespace ingot::kernels
