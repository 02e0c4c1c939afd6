#pragma once

#include <compare>
#include <cstdint>

#include "kernel_templates/common/kv_layout.cuh"
#include "kernel_templates/indexer_scores.args.h"
#include "src/checkpoint/model_config.hpp"

namespace ingot {

/// Query tokens of one step; what is longer is cut. Up to kMostNarrowRows they are appended to the
/// rings of their sequences at once.
constexpr int kMostStepRows = 4096, kMostNarrowRows = 256;
/// Sequences of one step, and rows of it whose logits are wanted.
constexpr int kMostStepSequences = 256, kMostLogitRows = 256;

/// The sizes that a step's kernels are made for. A step that is smaller in each runs on them.
struct StepBucket {
  int rows = 1;                 ///< query tokens
  int sequences = 1;            ///< that they belong to
  int sequence_rows = 1;        ///< the most tokens of one sequence
  int logit_rows = 1;           ///< rows whose logits are wanted; rows themselves where all are
  std::int64_t context = 4096;  ///< tokens of the longest sequence behind the step
  bool sampled = false;         ///< tokens are chosen from the logits
  /// A row's sums depend on nothing but the row: every such step runs the kernels of the widest.
  bool batch_free = false;

  /// More rows than rings have room for beside their windows: the step's window entries lie beside
  /// the rings until all rows have read them, and kernels for many rows serve it.
  bool wide() const { return rows > kMostNarrowRows; }

  bool operator==(const StepBucket&) const = default;
  auto operator<=>(const StepBucket&) const = default;
};

/// Tokens up to which a linear quantises its bf16 input itself, and the router multiplies its gate.
constexpr int kMostBf16InputTokens = 16;
constexpr int kMostGateTokens = 64;
/// Query tokens of the widest batch-free step.
constexpr int kBatchFreeRows = kMostNarrowRows;
/// The window ring of a sequence: 128 entries and those of a narrow step, in whole pages.
constexpr int kWindowRing = 384;
/// Rows of one launch of the routed experts in a wide step, and of a sum over ranks, where slices
/// of it are launched one by one.
constexpr int kMostSliceRows = 256;
/// Scores of index keys that a launch may make; with longer contexts a step takes several.
constexpr std::int64_t kMostIndexScores = std::int64_t{1} << 26;
/// Newest tokens of a sequence whose compressor state is kept.
constexpr int kCompressorRows = 16;
/// Tokens that a sequence can go back: the next entry needs up to seven before them.
constexpr int kMostRollback = kCompressorRows - 8;
/// Bytes of a page of index keys.
constexpr int kIndexPageBytes =
    kernels::KV_PAGE_ENTRIES * (kernels::INDEX_CODE_BYTES + kernels::INDEX_SCALE_BYTES);

/// The rows that decide which launches a step has.
inline int deciding_rows(const StepBucket& bucket) {
  return bucket.batch_free ? kBatchFreeRows : bucket.rows;
}

/// Whether a step's compressors run beside its queries' linears. Where there are many rows each
/// fills the card by itself.
inline bool runs_beside(const StepBucket& bucket) {
  return !bucket.wide();
}

/// The step whose kernels every batch-free step runs that has the same launches as this one.
StepBucket widest_batch_free(const StepBucket& bucket, std::int64_t model_context);

/// Whether sample_tokens can read this model's logits.
bool can_sample(const ModelConfig& config);

/// Entries of a row's list of compressed keys in HCA layers; 0 for a model without such layers.
int hca_list_slots(const ModelConfig& config, const StepBucket& bucket);

/// Rows whose index keys are scored by one launch: all of a bucket's, or a part of that divides
/// them.
int index_slice_rows(const StepBucket& bucket);
/// The most scores that a launch makes, of any bucket of up to so many rows and so long a context.
std::int64_t most_index_scores(std::int64_t rows, std::int64_t context);

/// Rows of the largest step where chunks of prompts have up to so many tokens: a power of two.
int step_rows_of(std::int64_t chunk);

/// How many of `rows` rows the next pass takes: all, or the largest power of two in them where
/// that and what is left take less time than a pass that is mostly idle.
/// @param most  rows of a pass, a power of two
int next_pass_rows(std::int64_t rows, int most);

/// The smallest context bucket of so many tokens: 4K, 32K, 128K and so on by four, up to the
/// longest context of the model. What an engine allows does not enter: its kernels are those that
/// prewarm made.
std::int64_t context_bucket(std::int64_t tokens, std::int64_t model_context);

/// The smallest bucket that holds a step: powers of two of rows and sequences, and a context
/// bucket.
/// @param model_context  max_position_embeddings
StepBucket bucket_of(const StepBucket& step, std::int64_t model_context);

}  // namespace ingot
