#pragma once

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
#include "kernel_templates/shared_expert_few.space.hpp"
#include "kernel_templates/sparse_mla_decode_problem.hpp"
#include "kernel_templates/swiglu_quant.space.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot {

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
  /// Of few rows, where their number may enter sums: the router and the shared expert in one.
  std::optional<kernels::SharedExpertFewProblem> shared_router, hash_shared_router;
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

/// Where the grouped experts of a step keep what they hand on.
kernels::MoePrefillWorkspace grouped_workspace(const ModelConfig& config, int tp_size, int rows);

/// @param tp_size   one of valid_tp_sizes(config)
/// @param one_shot  ranks do not reach each other's memory: sums over them are launched in parts
StepProblems step_problems(const ModelConfig& config, int tp_size, const StepBucket& bucket,
                           bool one_shot = false);

}  // namespace ingot
