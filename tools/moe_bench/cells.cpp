#include "tools/moe_bench/cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace ingot::bench {
namespace {

constexpr std::array kTokens{1, 4, 16, 64, 256};

// H200, gate/up, activation, down and sum: the best of triton_kernels, Marlin and Humming.
const std::map<int, std::array<double, 5>> kBestPeer{
    {8, {25.1, 35.1, 74.3, 156.0, 183.0}},
    {1, {49.4, 120.1, 374.7, 898.1, 1163.0}},
};

}  // namespace

std::string MoeCell::name() const {
  return fmt::format("TP{} B{}{}", tensor_parallel, tokens, same_experts ? " same" : "");
}
kernels::MoeDecodeProblem MoeCell::problem() const {
  return {.batch = tokens, .inter = inter(), .whole_experts = tensor_parallel == 1};
}
double MoeCell::bytes(double experts) const {
  // 4-bit weights with a scale per 32 of three matrices; inputs, their scales, fp32 outputs.
  return experts * inter() * 3 * 4096 * (0.5 + 1.0 / 32) + tokens * (4096 * 5.0 + 128);
}
double MoeCell::peer_us() const {
  const auto known = kBestPeer.find(tensor_parallel);
  if (known == kBestPeer.end() || same_experts) return 0;
  const auto at = std::find(kTokens.begin(), kTokens.end(), tokens) - kTokens.begin();
  return known->second[static_cast<std::size_t>(at)];
}

std::vector<MoeCell> moe_cells() {
  std::vector<MoeCell> cells;
  for (const int tensor_parallel : {8, 1, 4, 2})
    for (const int tokens : kTokens)
      cells.push_back({tensor_parallel, tokens});
  cells.push_back({8, 64, true});
  cells.push_back({1, 64, true});
  return cells;
}

std::string MoeCandidate::brief() const {
  return fmt::format("w{}r{} j{}x{} n{} x{} b{}", params.WARPS, params.REDUCE_WARPS,
                     params.STAGE_JOBS, params.STAGES, params.NMAX, params.X_BUFFERS,
                     params.BARRIERS);
}

std::vector<MoeCandidate> moe_candidates(const MoeCell& cell, const cu::DeviceLimits& device) {
  using kernels::MoeDecode;
  std::vector<MoeCandidate> candidates;
  for (const auto& params : MoeDecode::space(cell.problem(), device).candidates())
    candidates.push_back({params,
                          {std::string(MoeDecode::kStem), jit::param_values(params)},
                          MoeDecode::launch_shape(cell.problem(), params, device)});
  return candidates;
}

}  // namespace ingot::bench
