#pragma once

#include <vector>

#include "src/engine/engine.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot {

/// The sizes of the steps of a forecast, what is likeliest to be waited for first: single tokens,
/// then chunks as short as most questions, then the others; in every context bucket that the
/// sequence may reach.
/// @param model_context  max_position_embeddings
/// @param can_sample     tokens can be chosen from this model's logits
std::vector<StepBucket> forecast_buckets(const StepForecast& forecast, std::int64_t model_context,
                                         bool can_sample, bool batch_free);

}  // namespace ingot
