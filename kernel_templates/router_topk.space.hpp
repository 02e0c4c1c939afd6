#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "kernel_templates/router_topk.args.h"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "tuner/space.hpp"

namespace ingot::kernels {

struct RouterTopkParams {
#define PARAM(type, name, value, doc) type name = value;
#include "kernel_templates/router_topk.params.def"
#undef PARAM

  template <class Visitor>
  void for_each(Visitor&& visit) const {
#define PARAM(type, name, value, doc) visit(#type, #name, name);
#include "kernel_templates/router_topk.params.def"
#undef PARAM
  }
  bool operator==(const RouterTopkParams&) const = default;
};

struct RouterTopkProblem {
  int hidden = 4096;  ///< a multiple of 32
  int experts = 256;  ///< a multiple of 8
  int top = 6;        ///< experts of a token
  int tokens = 1;     ///< the batch bucket
  bool hash = false;  ///< experts by token id
  bool gate = true;   ///< the gate is multiplied here, for few tokens; else bf16_linear did it

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [hidden, experts, top, tokens, hash, gate] = self;
    visit("hidden", hidden);
    visit("experts", experts);
    visit("top", top);
    visit("tokens", tokens);
    visit("hash", hash);
    visit("gate", gate);
  }
};

/// The router. Device code: router_topk.cuh.
struct RouterTopk {
  static constexpr std::string_view kStem = "router_topk";
  using Params = RouterTopkParams;
  using Problem = RouterTopkProblem;
  using Args = RouterTopkArgs;

  static bool runs_on(const cu::DeviceLimits& device) { return device.arch >= 80; }

  static int smem_bytes(const Params& c) {
    return router_topk_smem_bytes(c.WARPS, c.BLOCK_EXPERTS, c.EXPERTS, c.GATE);
  }

  static Space<Params> space(const Problem& problem, const cu::DeviceLimits& device) {
    Params base;
    base.HIDDEN = problem.hidden;
    base.EXPERTS = problem.experts;
    base.TOP = problem.top;
    base.HASH = problem.hash;
    base.GATE = problem.gate;
    // Without the gate a warp's token is all there is to do; choosing its experts takes longest.
    if (!base.GATE) base.WARPS = base.HASH ? 4 : 2;
    Space<Params> space(base);
    if (base.GATE) {
      space.axis(&Params::BLOCK_EXPERTS, {4, 8}).axis(&Params::WARPS, {8, 16});
    } else {
      space.axis(&Params::WARPS, {1, 2, 4, 8});
    }
    return space.keep_if("shared memory fits", [=](const Params& c) {
      return smem_bytes(c) <= device.smem_per_block_bytes;
    });
  }

  static cu::LaunchShape launch_shape(const Problem& problem, const Params& c,
                                      const cu::DeviceLimits& device) {
    cu::LaunchShape shape{.grid = {},
                          .block = {static_cast<unsigned>(32 * c.WARPS)},
                          .smem_bytes = static_cast<unsigned>(smem_bytes(c)),
                          .programmatic = true};
    if (c.GATE) {
      const int blocks = std::min(c.EXPERTS / c.BLOCK_EXPERTS, device.sm_count);
      const int tiles = (problem.tokens + ROUTER_TOKENS - 1) / ROUTER_TOKENS;
      shape.grid = {static_cast<unsigned>(blocks),
                    static_cast<unsigned>(std::clamp(device.sm_count / blocks, 1, tiles))};
    } else {
      shape.grid = {static_cast<unsigned>((problem.tokens + c.WARPS - 1) / c.WARPS)};
    }
    return shape;
  }

  static i64 workspace_bytes(const Problem& problem, const Params& c) {
    return c.GATE ? router_topk_workspace_bytes(problem.tokens, c.EXPERTS) : 0;
  }

  /// DeepSeek-V4-Flash with and without the gate, by score and by token id; and 384 experts.
  static std::vector<Problem> sample_problems() {
    return {{},
            {.hash = true},
            {.gate = false},
            {.hash = true, .gate = false},
            {.hidden = 7168, .experts = 384}};
  }
};

}  // namespace ingot::kernels
