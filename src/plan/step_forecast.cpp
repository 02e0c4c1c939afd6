#include "src/plan/step_forecast.hpp"

#include <algorithm>

namespace ingot {
namespace {

/// A question of a chat with what the format puts around it has as many tokens at the least,
/// mostly.
constexpr int kShortQuestion = 8;

}  // namespace

std::vector<StepBucket> forecast_buckets(const StepForecast& forecast, std::int64_t model_context,
                                         bool can_sample, bool batch_free) {
  std::vector<std::int64_t> contexts;
  const std::int64_t longest = std::min(forecast.to, model_context);
  for (std::int64_t length = forecast.from + 1; length <= longest; length = contexts.back() + 1)
    contexts.push_back(context_bucket(length, model_context));

  std::vector<StepBucket> steps;  // of one context
  const bool chosen = forecast.offered && can_sample;
  if (chosen) steps.push_back({.sampled = true});
  if (forecast.asked || (forecast.offered && !can_sample)) steps.push_back({});
  const int most = batch_free ? std::min(forecast.chunk, kBatchFreeRows) : forecast.chunk;
  const auto add_chunks = [&](int from, int to) {
    for (int rows = from; rows < to; rows *= 2)
      steps.push_back({.rows = rows, .sequence_rows = rows, .logit_rows = 0});
  };
  add_chunks(kShortQuestion, 2 * most);
  add_chunks(1, std::min(kShortQuestion, 2 * most));

  std::vector<StepBucket> buckets;
  for (StepBucket step : steps) {
    step.batch_free = batch_free;
    for (const std::int64_t context : contexts) {
      step.context = context;
      buckets.push_back(bucket_of(step, model_context));
    }
  }
  return buckets;
}

}  // namespace ingot
