#pragma once

#include <string>
#include <vector>

#include "kernel_templates/fp8_linear_problem.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/jit/variant.hpp"

/// What the bench of the FP8 linears measures: DeepSeek-V4-Flash's linears at decode sizes.
namespace ingot::bench {

/// One linear (or two that share their input) at one number of tokens.
struct Cell {
  std::string name;  ///< "wq_a", "wq_a+wkv" …
  kernels::Fp8LinearProblem problem;
  double peer_us = 0;  ///< DeepGEMM on one H200; for a pair, the sum of its two launches

  double bytes() const;  ///< weights, scales, quantised input and output, each once
  double flops() const;
};

std::vector<Cell> cells();

/// Whether one of `names`, each a linear ("wq_a") or one of its cells ("wq_a:256"), is the cell's;
/// all cells where there are none. Throws EngineError(invalid_argument) for a name of no cell.
bool is_wanted(const Cell& cell, const std::vector<std::string>& names);

/// One way to compute a cell.
struct Candidate {
  jit::Variant variant;
  cu::LaunchShape shape;
  long long workspace_bytes = 0;
  bool x_bf16 = false;  ///< reads bf16 and quantises; otherwise reads act_quant's output

  int param(const std::string& name) const;  ///< 0 where the family has no such parameter
  std::string brief() const;                 ///< "sm90 T8 S12 K16 C1 R1"
};

/// Every candidate of every family that runs on the card, without repetitions.
std::vector<Candidate> candidates(const Cell& cell, const cu::DeviceLimits& device);

}  // namespace ingot::bench
