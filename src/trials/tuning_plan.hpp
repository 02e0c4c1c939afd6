#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/plan/step_problems.hpp"
#include "tuner/overrides.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot::trials {

/// The buckets of a deployment, those that matter most first: decode steps of one sequence, then
/// whole chunks of prompts, then larger batches; each from the shortest context on.
/// @param batches  sequences of a decode step, ascending
/// @param chunks   tokens of a prompt's step, likewise; may be empty
std::vector<StepBucket> deployed_buckets(const std::vector<int>& batches,
                                         const std::vector<int>& chunks,
                                         const std::vector<std::int64_t>& contexts);

/// What there is to tune in the steps of these buckets: every problem once, that of the largest
/// share of its step first, a share of the n-th bucket counting the n-th part; those
/// without a choice last.
/// @param overrides  a pinned family that serves by a pin alone is in the plan
/// Errors: unsupported where a kernel has no variant on this card.
[[nodiscard]] Result<std::vector<TuningRequest>> tuning_plan(const ModelConfig& config, int tp_size,
                                                             const std::vector<StepBucket>& buckets,
                                                             const cu::DeviceLimits& device,
                                                             const Overrides& overrides = {});

}  // namespace ingot::trials
