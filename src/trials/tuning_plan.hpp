#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/plan/step_bucket.hpp"
#include "tuner/overrides.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot::trials {

/// The buckets of a deployment, those that matter most first: decode steps of one sequence, then
/// whole chunks of prompts, then larger batches; each from the shortest context on. Last, the wide
/// steps of long prompts, at the shortest context alone.
/// @param batches  sequences of a decode step, ascending
/// @param chunks   tokens of a prompt's step, likewise; may be empty
/// @param sampled  tokens are chosen on the card
std::vector<StepBucket> deployed_buckets(const std::vector<int>& batches,
                                         const std::vector<int>& chunks,
                                         const std::vector<std::int64_t>& contexts, bool sampled);

/// What there is to tune in the steps of these buckets.
struct TuningPlan {
  /// Every problem once, that of the largest share of its step first, a share of the n-th bucket
  /// counting the n-th part; those without a choice last.
  std::vector<TuningRequest> requests;
  /// What all ranks launch together, which one of them cannot try: with more than one rank.
  std::vector<TuningRequest> collectives;

  struct Step {
    StepBucket bucket;
    std::vector<int> launches;  ///< by request; 0: none
  };
  std::vector<Step> steps;  ///< by bucket
};

/// Whether all ranks launch the family's kernels together.
bool is_collective(const std::string& family);

/// @param overrides  a pinned family that serves by a pin alone is in the plan
/// Errors: unsupported where a kernel has no variant on this card.
[[nodiscard]] Result<TuningPlan> tuning_plan(const ModelConfig& config, int tp_size,
                                             const std::vector<StepBucket>& buckets,
                                             const cu::DeviceLimits& device,
                                             const Overrides& overrides = {});

}  // namespace ingot::trials
