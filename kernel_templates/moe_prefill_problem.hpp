#pragma once

#include <algorithm>

#include "kernel_templates/moe_prefill.args.h"

namespace ingot::kernels {

/// What the routed experts of one rank are asked to do with many tokens: one of the two products.
struct MoePrefillProblem {
  int tokens = 4096;  ///< most of a launch, up to MOE_PREFILL_TOKENS
  int inter = 2048;   ///< this rank's share of an expert's intermediate size
  int hidden = 4096;
  int experts = 256;
  int topk = 6;
  bool whole_experts = true;  ///< the rank has all of an expert: its output is rounded here
  bool down = false;          ///< the second product

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [tokens, inter, hidden, experts, topk, whole_experts, down] = self;
    visit("tokens", tokens);
    visit("inter", inter);
    visit("hidden", hidden);
    visit("experts", experts);
    visit("topk", topk);
    visit("whole_experts", whole_experts);
    visit("down", down);
  }
};

/// Where the launches of one pass keep what they hand on, in one allocation (256-byte aligned).
/// In order: expert_order, expert_gather, gate/up, down, expert_join. `rows` and `y` share a place:
/// down no longer needs the inputs.
struct MoePrefillWorkspace {
  long long first = 0, count = 0, row_of = 0, row_weight = 0;  // of expert_order
  long long rows = 0, row_scale = 0;                           // of expert_gather
  long long h = 0, h_scale = 0, y = 0;
  long long bytes = 0;
  int row_pitch = 0;

  MoePrefillWorkspace(int tokens, int inter, int hidden, int experts, int topk, bool whole_experts)
      : row_pitch(expert_rows(tokens, topk, experts)) {
    const auto take = [&](long long size) {
      const long long at = bytes;
      bytes += (size + 255) / 256 * 256;
      return at;
    };
    const long long pitch = row_pitch;
    first = take(experts * 4);
    count = take(experts * 4);
    row_of = take(4LL * tokens * topk);
    row_weight = take(pitch * 4);
    row_scale = take(hidden / 128 * pitch * 4);
    h = take(inter * pitch);
    h_scale = take(inter / 128 * pitch * 4);
    rows = y = take(std::max<long long>(hidden * pitch, hidden * pitch * (whole_experts ? 2 : 4)));
  }
};

}  // namespace ingot::kernels
