#include "tools/kernel_bench/cells.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernel_templates/fp8_linear.space.hpp"
#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "kernel_templates/fp8_linear_wide_sm90.space.hpp"
#include "runtime/base/error.hpp"

namespace ingot::bench {
namespace {

constexpr int kTokens[] = {1, 16, 64, 256};

/// A row of published times, microseconds for 1, 16, 64 and 256 tokens. Measured with DeepGEMM
/// 54e2261 (fp8_gemm_nt, quantised input given) on one H200: CUDA graph of
/// many nodes, weights rotating over 400 MB, median.
struct Linear {
  const char* name;
  std::array<int, 3> rows;
  int cols;
  std::array<double, 4> peer_us;
};
constexpr Linear kLinears[] = {
    {"wq_a", {1024}, 4096, {7.0, 6.6, 6.2, 6.7}},
    {"wkv", {512}, 4096, {6.9, 6.5, 6.0, 6.1}},
    {"wq_a+wkv", {1024, 512}, 4096, {13.9, 13.1, 12.2, 12.8}},
    {"wq_b", {32768}, 1024, {12.5, 12.6, 12.8, 19.1}},
    {"wo_b", {4096}, 8192, {16.3, 12.9, 12.0, 18.2}},
};

/// Quantising in every block pays while the input is small.
constexpr int kMostTokensQuantizedInPlace = 16;

template <class Family>
void add(std::vector<Candidate>& all, const kernels::Fp8LinearProblem& problem,
         const cu::DeviceLimits& device) {
  if (!Family::runs_on(device)) return;
  for (const auto& params : Family::space(problem, device).candidates()) {
    Candidate candidate{.variant = {std::string(Family::kStem), jit::param_values(params)},
                        .shape = Family::launch_shape(problem, params, device),
                        .workspace_bytes = Family::workspace_bytes(problem, params),
                        .x_bf16 = problem.x_bf16};
    candidate.shape.programmatic = false;  // measured with and without; without is the peers' way
    all.push_back(std::move(candidate));
  }
}

}  // namespace

double Cell::bytes() const {
  const double rows = problem.rows[0] + problem.rows[1] + problem.rows[2];
  const double k_tiles = problem.k_tiles();
  return rows * problem.cols + rows / 128 * k_tiles +
         problem.tokens * (problem.cols + 4 * k_tiles) + 2.0 * problem.tokens * rows;
}

double Cell::flops() const {
  const double rows = problem.rows[0] + problem.rows[1] + problem.rows[2];
  return 2.0 * rows * problem.cols * problem.tokens;
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const Linear& linear : kLinears) {
    for (std::size_t i = 0; i < std::size(kTokens); ++i) {
      all.push_back({.name = linear.name,
                     .problem = {.rows = linear.rows, .cols = linear.cols, .tokens = kTokens[i]},
                     .peer_us = linear.peer_us[i]});
    }
  }
  return all;
}

bool is_wanted(const Cell& cell, const std::vector<std::string>& names) {
  const auto is_name_of = [](const Cell& one, const std::string& name) {
    return name == one.name || name == fmt::format("{}:{}", one.name, one.problem.tokens);
  };
  for (const auto& name : names) {
    const auto all = cells();
    if (std::none_of(all.begin(), all.end(), [&](const Cell& c) { return is_name_of(c, name); })) {
      throw EngineError(ErrorCode::invalid_argument,
                        fmt::format("no cell is named {}: a linear is wq_a, wkv, wq_a+wkv, wq_b or "
                                    "wo_b, one of its cells has :1, :16, :64 or :256 behind it",
                                    name));
    }
  }
  return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return is_name_of(cell, name);
         });
}

int Candidate::param(const std::string& name) const {
  for (const auto& value : variant.params) {
    if (value.name == name) return static_cast<int>(value.value);
  }
  return 0;
}

std::string Candidate::brief() const {
  return fmt::format("{} T{} S{} D{} K{}{}{}{}{}{}",
                     variant.family == "fp8_linear_wide_sm90" ? "wide"
                     : variant.family == "fp8_linear_sm90"    ? "sm90"
                                                              : "mma",
                     param("TOKENS"), param("STAGES"), param("DEPTH"), param("SPLIT_K"),
                     param("CLUSTERED") != 0 ? "c" : "", param("MULTICAST") != 0 ? "m" : "",
                     param("WARM_UP") != 0 ? " W" : "", param("X_RESIDENT") != 0 ? " R" : "",
                     param("FP8_MMA") != 0 ? " fp8" : "");
}

std::vector<Candidate> candidates(const Cell& cell, const cu::DeviceLimits& device) {
  std::vector<Candidate> all;
  for (const bool x_bf16 : {false, true}) {
    if (x_bf16 && cell.problem.tokens > kMostTokensQuantizedInPlace) continue;
    kernels::Fp8LinearProblem problem = cell.problem;
    problem.x_bf16 = x_bf16;
    add<kernels::Fp8LinearSm90>(all, problem, device);
    if (kernels::Fp8LinearWideSm90::takes(problem))
      add<kernels::Fp8LinearWideSm90>(all, problem, device);
    add<kernels::Fp8Linear>(all, problem, device);
  }
  return all;
}

}  // namespace ingot::bench
