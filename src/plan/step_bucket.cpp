#include "src/plan/step_bucket.hpp"

#include <algorithm>
#include <bit>

#include "kernel_templates/sample_tokens.space.hpp"

namespace ingot {
namespace {

int next_power(int n) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(n, 1))));
}

/// Scores of a row, as they lie.
std::int64_t index_entries(std::int64_t context) {
  return std::max<std::int64_t>((context / 4 + 3) / 4 * 4, 4);
}

}  // namespace

bool can_sample(const ModelConfig& config) {
  // Rows of logits lie one behind the other, and are read in words of four.
  return config.vocab_size % 4 == 0 && config.vocab_size <= kernels::SAMPLE_MOST_VOCABULARY;
}

int hca_list_slots(const ModelConfig& config, const StepBucket& bucket) {
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (config.layer_kind(layer) == LayerKind::hca)
      return static_cast<int>(std::max<std::int64_t>(bucket.context / 128, 1));
  }
  return 0;
}

int index_slice_rows(const StepBucket& bucket) {
  const std::int64_t fit =
      std::max<std::int64_t>(kMostIndexScores / index_entries(bucket.context), kMostNarrowRows);
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(fit)));
  return static_cast<int>(std::min<std::int64_t>(power, bucket.rows));
}

std::int64_t most_index_scores(std::int64_t rows, std::int64_t context) {
  const std::int64_t entries = index_entries(context);
  return std::min(rows * entries, std::max(kMostIndexScores, kMostNarrowRows * entries));
}

int step_rows_of(std::int64_t chunk) {
  const std::int64_t rows = std::clamp<std::int64_t>(chunk, kMostNarrowRows, kMostStepRows);
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
}

int next_pass_rows(std::int64_t rows, int most) {
  // A pass takes about as long as so many rows more: it reads all experts, however few rows it has.
  constexpr std::int64_t kPassRows = 384;
  if (rows >= most) return most;
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1));
  const auto padded = static_cast<std::int64_t>(std::bit_ceil(count));
  const auto cut = static_cast<std::int64_t>(std::bit_floor(count));
  if (padded <= kMostNarrowRows || cut == padded) return static_cast<int>(rows);
  // What is left is cut in turn.
  std::int64_t apart = cut + kPassRows;
  for (std::int64_t left = rows - cut; left > 0;) {
    const std::int64_t next = next_pass_rows(left, static_cast<int>(cut));
    apart += static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(next))) + kPassRows;
    left -= next;
  }
  return static_cast<int>(apart < padded + kPassRows ? cut : rows);
}

std::int64_t context_bucket(std::int64_t tokens, std::int64_t model_context) {
  std::int64_t context = 4096;
  while (context < tokens)
    context *= context == 4096 ? 8 : 4;
  return std::min(context, std::max<std::int64_t>(model_context, 128));
}

StepBucket bucket_of(const StepBucket& step, std::int64_t model_context) {
  StepBucket bucket;
  bucket.rows = next_power(step.rows);
  bucket.sequences = next_power(step.sequences);
  bucket.sequence_rows = step.sequence_rows > 1 ? bucket.rows : 1;
  bucket.logit_rows = step.logit_rows == 0 ? 0 : std::min(next_power(step.logit_rows), bucket.rows);
  bucket.context = context_bucket(step.context, model_context);
  bucket.sampled = step.sampled;
  bucket.batch_free = step.batch_free;
  return bucket;
}

StepBucket widest_batch_free(const StepBucket& bucket, std::int64_t model_context) {
  return {.rows = kBatchFreeRows,
          .sequences = kBatchFreeRows,
          .sequence_rows = kBatchFreeRows,
          .logit_rows = kBatchFreeRows,
          .context = context_bucket(model_context, model_context),
          .sampled = bucket.sampled,
          .batch_free = true};
}

}  // namespace ingot
