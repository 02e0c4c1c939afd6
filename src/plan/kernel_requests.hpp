#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel_templates/family.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "src/checkpoint/model_config.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot {

/// What a plan of kernels is made for, besides the model and the card.
struct PlanScope {
  int tp_size = 1;
  /// Sequences of a decode step, and tokens of a chunk; those above kMostNarrowRows are chunks
  /// only.
  std::vector<int> batch_buckets{1};
  std::vector<std::int64_t> context_buckets{4096};  ///< longest context that a bucket serves
  /// Families that a user does without: where one takes the place of several, those are planned.
  std::vector<std::string> disabled = {};
};

/// One use of a kernel: a problem, and the families that may serve it.
struct KernelUse {
  TuningRequest tuning;
  std::vector<kernels::VariantSet> families;
};

/// Every use that the model makes of kernels on this card within this scope; equal ones are one.
/// Errors: invalid_argument for a TP size that the model cannot be split by (names the valid ones);
/// unsupported for a model whose linears are not whole 128 x 128 blocks, whose KV entries or
/// indexer have other widths than the kernels, that has another number of hyper-connection streams
/// than four, or of which some kernel has no variant on this card.
[[nodiscard]] Result<std::vector<KernelUse>> kernel_uses(const ModelConfig& config,
                                                         const PlanScope& scope,
                                                         const cu::DeviceLimits& device);

/// The same without the uses: every set of variants, those that are alike once. Errors: the same.
[[nodiscard]] Result<std::vector<kernels::VariantSet>> kernel_requests(
    const ModelConfig& config, const PlanScope& scope, const cu::DeviceLimits& device);

}  // namespace ingot
