#pragma once

#include <cstdint>
#include <optional>

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/all_gather.space.hpp"
#include "kernel_templates/all_reduce.space.hpp"
#include "kernel_templates/attention_slots.space.hpp"
#include "kernel_templates/bf16_linear.space.hpp"
#include "kernel_templates/compress_kv.space.hpp"
#include "kernel_templates/embedding.space.hpp"
#include "kernel_templates/expert_gather.space.hpp"
#include "kernel_templates/expert_join.space.hpp"
#include "kernel_templates/expert_order.space.hpp"
#include "kernel_templates/expert_sum.space.hpp"
#include "kernel_templates/fp8_linear_problem.hpp"
#include "kernel_templates/grouped_linear_problem.hpp"
#include "kernel_templates/hc_post.space.hpp"
#include "kernel_templates/hc_pre.space.hpp"
#include "kernel_templates/indexer_queries.space.hpp"
#include "kernel_templates/indexer_scores_problem.hpp"
#include "kernel_templates/indexer_topk.space.hpp"
#include "kernel_templates/moe_decode.space.hpp"
#include "kernel_templates/moe_prefill_problem.hpp"
#include "kernel_templates/q_norm_rope.space.hpp"
#include "kernel_templates/rope_kv_append.space.hpp"
#include "kernel_templates/router_topk.space.hpp"
#include "kernel_templates/sample_tokens.space.hpp"
#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "kernel_templates/swiglu_quant.space.hpp"
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
/// Rows of one launch of the routed experts in a wide step, and of a sum over ranks.
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

/// The problem of every kernel that a step of this bucket launches, in the order of the launches.
/// Source: model specification section 3.
struct StepProblems {
  kernels::AttentionSlotsProblem slots;
  kernels::EmbeddingProblem embedding;
  std::optional<kernels::AllReduceProblem> embedding_sum;  ///< with more than one rank
  kernels::HcPreProblem hc_first;                          ///< in front of the first sublayer
  kernels::HcPreProblem hc_between;  ///< in front of all others: takes the output before along
  kernels::Fp8LinearProblem wq_a_wkv;
  std::optional<kernels::ActQuantProblem> q_quant;  ///< where wq_b does not quantise its input
  kernels::Fp8LinearProblem wq_b;                   ///< of layers without an indexer
  kernels::Fp8LinearProblem wq_b_indexer;           ///< with the indexer's queries
  kernels::QNormRopeProblem q_norm_rope;
  kernels::RopeKvAppendProblem kv_append;
  std::optional<kernels::RopeKvAppendProblem> kv_keep;  ///< of a wide step: into the rings
  kernels::Bf16LinearProblem csa_linear;  ///< head weights, wkv and wgate of both compressors
  kernels::Bf16LinearProblem hca_linear;  ///< wkv and wgate
  kernels::CompressKvProblem csa_compress, index_compress, hca_compress;
  kernels::IndexerQueriesProblem index_queries;
  kernels::IndexerScoresProblem index_scores;
  kernels::IndexerTopkProblem index_topk;
  kernels::SparseMlaDecodeProblem swa_attention, csa_attention, hca_attention;
  kernels::GroupedLinearProblem wo_a;
  std::optional<kernels::ActQuantProblem> o_quant;  ///< where wo_b does not quantise its input
  kernels::Fp8LinearProblem wo_b;
  std::optional<kernels::AllReduceProblem> attention_sum;  ///< with more than one rank
  std::optional<kernels::Bf16LinearProblem> gate;  ///< where the router does not multiply it
  kernels::RouterTopkProblem router, hash_router;
  kernels::MoeDecodeProblem experts;  ///< of a wide step: of a slice, where they are not grouped
  /// Of a wide step: its pairs of token and expert in the order of experts.
  struct Grouped {
    kernels::ExpertOrderProblem order;
    kernels::ExpertGatherProblem gather;
    kernels::MoePrefillProblem gate_up, down;
    kernels::ExpertJoinProblem join;
  };
  std::optional<Grouped> grouped_experts;
  kernels::Fp8LinearProblem shared_up;  ///< w1 and w3
  kernels::SwigluQuantProblem shared_activation;
  kernels::Fp8LinearProblem shared_down;
  kernels::ExpertSumProblem expert_sum;               ///< with one rank
  std::optional<kernels::AllReduceProblem> rank_sum;  ///< with more: the same over all ranks
  kernels::HcPostProblem hc_last;
  std::optional<kernels::EmbeddingProblem> pick_rows;  ///< where not all rows' logits are wanted
  kernels::HcPreProblem hc_head;
  kernels::Bf16LinearProblem head;
  std::optional<kernels::AllGatherProblem> logits;     ///< with more than one rank
  std::optional<kernels::SampleTokensProblem> sample;  ///< where tokens are chosen
};

/// The rows that decide which launches a step has.
inline int deciding_rows(const StepBucket& bucket) {
  return bucket.batch_free ? kBatchFreeRows : bucket.rows;
}

/// The step whose kernels every batch-free step runs that has the same launches as this one.
StepBucket widest_batch_free(const StepBucket& bucket, std::int64_t model_context);

/// Where the grouped experts of a step keep what they hand on.
kernels::MoePrefillWorkspace grouped_workspace(const ModelConfig& config, int tp_size, int rows);

/// Whether sample_tokens can read this model's logits.
bool can_sample(const ModelConfig& config);

/// @param tp_size   one of valid_tp_sizes(config)
/// @param one_shot  ranks do not reach each other's memory: sums over them are launched in parts
StepProblems step_problems(const ModelConfig& config, int tp_size, const StepBucket& bucket,
                           bool one_shot = false);

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
