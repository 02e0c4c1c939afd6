#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "kernel_templates/all_reduce_wide.space.hpp"
#include "kernel_templates/bf16_linear_sm90.space.hpp"
#include "kernel_templates/fp8_linear.space.hpp"
#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "kernel_templates/fp8_linear_wide_sm90.space.hpp"
#include "kernel_templates/grouped_linear.space.hpp"
#include "kernel_templates/grouped_linear_few.space.hpp"
#include "kernel_templates/grouped_linear_sm90.space.hpp"
#include "kernel_templates/hc_pre_wide.space.hpp"
#include "kernel_templates/indexer_scores.space.hpp"
#include "kernel_templates/indexer_scores_sm90.space.hpp"
#include "kernel_templates/moe_prefill.space.hpp"
#include "kernel_templates/moe_prefill_sm90.space.hpp"
#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "kernel_templates/sparse_mla_decode_simt.space.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "kernel_templates/sparse_mla_prefill.space.hpp"
#include "kernel_templates/sparse_mla_prefill_sm90.space.hpp"
#include "src/plan/step_problems.hpp"

namespace ingot {

/// The kernels of one bucket's step, as slots of what collected them: the engine's library, or a
/// list of what to compile and tune. The one place that says which families serve what.
struct StepKernels {
  using Slot = std::size_t;
  Slot slots{}, embedding{}, hc_first{}, hc_between{}, wq_a_wkv{}, q_quant{}, wq_b{},
      wq_b_indexer{}, q_norm_rope{}, kv_append{}, kv_keep{}, csa_linear{}, hca_linear{},
      csa_compress{}, index_compress{}, hca_compress{}, index_queries{}, index_scores{},
      index_topk{}, swa_attention{}, csa_attention{}, hca_attention{}, wo_a{}, o_quant{}, wo_b{},
      gate{}, router{}, hash_router{}, shared_router{}, hash_shared_router{}, experts{},
      expert_order{}, expert_gather{}, experts_up{}, experts_down{}, expert_join{}, shared_up{},
      shared_activation{}, shared_down{}, expert_sum{}, hc_last{}, pick_rows{}, hc_head{}, head{},
      embedding_sum{}, attention_sum{}, rank_sum{}, logits{}, sample{};
  bool shared_with_router = false;  ///< the shared expert and the router are one launch
  bool grouped = false;             ///< the routed experts go by expert; else in slices of rows
  bool sums_at_once = false;        ///< sums over ranks take all rows; else slices of them
  std::vector<Slot> all;            ///< those that this model's steps launch

  /// Wants every kernel of the bucket that the model's layers launch.
  /// @tparam Collector  has `Slot want<First, Others...>(problem)`, the first family being the one
  ///                    that serves without a tuning, and `limits()` of the card
  template <class Collector>
  static StepKernels want(Collector& collector, const ModelConfig& config, const StepProblems& p);
};

namespace step_kernels_detail {

template <class Collector>
StepKernels::Slot want_attention(Collector& collector,
                                 const kernels::SparseMlaDecodeProblem& problem) {
  using kernels::SparseMlaDecode, kernels::SparseMlaDecodeSm90, kernels::SparseMlaDecodeSimt;
  using kernels::SparseMlaPrefill, kernels::SparseMlaPrefillSm90;
  if (problem.rows > kMostNarrowRows) {
    if (!SparseMlaPrefillSm90::runs_on(collector.limits())) {
      return collector.template want<SparseMlaPrefill>(problem);
    }
    // A wgmma has 64 rows of keys however few heads there are: eight leave it behind.
    return problem.heads > 8
               ? collector.template want<SparseMlaPrefillSm90, SparseMlaPrefill>(problem)
               : collector.template want<SparseMlaPrefill, SparseMlaPrefillSm90>(problem);
  }
  // One head to a block, without tensor cores: serves where a user pins it, for comparison.
  if constexpr (requires { collector.pins(SparseMlaDecodeSimt::kStem); }) {
    if (collector.pins(SparseMlaDecodeSimt::kStem))
      return collector.template want<SparseMlaDecodeSimt, SparseMlaDecode, SparseMlaDecodeSm90>(
          problem);
  }
  // Whichever comes first is the default.
  if (SparseMlaDecodeSm90::is_default(problem, collector.limits())) {
    return collector.template want<SparseMlaDecodeSm90, SparseMlaDecode>(problem);
  }
  return collector.template want<SparseMlaDecode, SparseMlaDecodeSm90>(problem);
}

template <class Collector>
StepKernels::Slot want_scores(Collector& collector, const kernels::IndexerScoresProblem& problem) {
  using kernels::IndexerScores, kernels::IndexerScoresSm90;
  if (IndexerScoresSm90::takes(problem)) {
    // In e4m3 products are twice as fast, and for few rows fewer warps wait for fewer keys each.
    return IndexerScoresSm90::runs_on(collector.limits())
               ? collector.template want<IndexerScoresSm90, IndexerScores>(problem)
               : collector.template want<IndexerScores>(problem);
  }
  return collector.template want<IndexerScores>(problem);
}

template <class Collector>
StepKernels::Slot want_hyper_connection(Collector& collector,
                                        const kernels::HcPreProblem& problem) {
  using kernels::HcPre, kernels::HcPreWide;
  return HcPreWide::takes(problem) ? collector.template want<HcPreWide, HcPre>(problem)
                                   : collector.template want<HcPre>(problem);
}

template <class Collector>
StepKernels::Slot want_bf16_linear(Collector& collector,
                                   const kernels::Bf16LinearProblem& problem) {
  using kernels::Bf16Linear, kernels::Bf16LinearSm90;
  return Bf16LinearSm90::runs_on(collector.limits()) && Bf16LinearSm90::takes(problem)
             ? collector.template want<Bf16LinearSm90, Bf16Linear>(problem)
             : collector.template want<Bf16Linear>(problem);
}

template <class Collector>
StepKernels::Slot want_grouped_linear(Collector& collector,
                                      const kernels::GroupedLinearProblem& problem) {
  using kernels::GroupedLinear, kernels::GroupedLinearFew, kernels::GroupedLinearSm90;
  if (GroupedLinearFew::runs_on(collector.limits()) &&
      GroupedLinearFew::takes(problem, collector.limits())) {
    return GroupedLinearFew::is_default(problem, collector.limits())
               ? collector.template want<GroupedLinearFew, GroupedLinear>(problem)
               : collector.template want<GroupedLinear, GroupedLinearFew>(problem);
  }
  return GroupedLinearSm90::runs_on(collector.limits()) && GroupedLinearSm90::takes(problem)
             ? collector.template want<GroupedLinearSm90, GroupedLinear>(problem)
             : collector.template want<GroupedLinear>(problem);
}

template <class Collector>
StepKernels::Slot want_fp8_linear(Collector& collector, const kernels::Fp8LinearProblem& problem) {
  using kernels::Fp8Linear, kernels::Fp8LinearSm90, kernels::Fp8LinearWideSm90;
  if (!Fp8LinearSm90::runs_on(collector.limits())) {
    return collector.template want<Fp8Linear>(problem);
  }
  if (Fp8LinearWideSm90::is_default(problem, collector.limits())) {
    return collector.template want<Fp8LinearWideSm90, Fp8LinearSm90, Fp8Linear>(problem);
  }
  if (Fp8LinearWideSm90::takes(problem)) {
    return collector.template want<Fp8LinearSm90, Fp8LinearWideSm90, Fp8Linear>(problem);
  }
  return collector.template want<Fp8LinearSm90, Fp8Linear>(problem);
}

/// Whether a user goes without a family that is no candidate beside another, as it takes the place
/// of several launches: that is heard where launches are chosen.
template <class Family, class Collector>
bool is_disabled(const Collector& collector) {
  if constexpr (requires { collector.disables(Family::kStem); }) {
    return collector.disables(Family::kStem);
  } else {
    return false;
  }
}

/// Whether the shared expert and the router go in one launch.
template <class Collector>
bool shares_with_router(const Collector& collector, const StepProblems& p) {
  using kernels::SharedExpertFew;
  return p.shared_router && !is_disabled<SharedExpertFew>(collector) &&
         SharedExpertFew::runs_on(collector.limits()) &&
         SharedExpertFew::takes(*p.shared_router, collector.limits());
}

/// Whether a sum over ranks takes all rows at once. Of few it is the sooner there with counts
/// beside its words, all_reduce's, whose inboxes are for slices of rows.
template <class Collector>
bool sums_take_all_rows(const Collector& collector, const kernels::AllReduceProblem& problem) {
  using kernels::AllReduceWide;
  return problem.tokens > kMostSliceRows && !is_disabled<AllReduceWide>(collector) &&
         AllReduceWide::runs_on(collector.limits()) && AllReduceWide::takes(problem);
}

/// Whether a family has a variant for a product of grouped experts.
template <class Family, class Collector>
bool has_grouped(Collector& collector, const kernels::MoePrefillProblem& problem) {
  return Family::runs_on(collector.limits()) &&
         !Family::space(problem, collector.limits()).candidates().empty();
}

/// One product of grouped experts; nullopt where no family has a variant.
template <class Collector>
std::optional<StepKernels::Slot> want_grouped(Collector& collector,
                                              const kernels::MoePrefillProblem& problem) {
  using kernels::MoePrefill, kernels::MoePrefillSm90;
  if (has_grouped<MoePrefillSm90>(collector, problem)) {
    return collector.template want<MoePrefillSm90>(problem);
  }
  if (has_grouped<MoePrefill>(collector, problem)) {
    return collector.template want<MoePrefill>(problem);
  }
  return std::nullopt;
}

}  // namespace step_kernels_detail

template <class Collector>
StepKernels StepKernels::want(Collector& collector, const ModelConfig& config,
                              const StepProblems& p) {
  using namespace step_kernels_detail;
  bool swa = false, csa = false, hca = false;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    swa |= config.layer_kind(layer) == LayerKind::swa;
    csa |= config.layer_kind(layer) == LayerKind::csa;
    hca |= config.layer_kind(layer) == LayerKind::hca;
  }
  StepKernels k;
  const auto keep = [&](Slot& to, Slot slot) {
    to = slot;
    k.all.push_back(slot);
  };
  const auto add = [&]<class Family>(Slot& to, const typename Family::Problem& problem) {
    keep(to, collector.template want<Family>(problem));
  };
  const auto linear = [&](Slot& to, const kernels::Fp8LinearProblem& problem) {
    keep(to, want_fp8_linear(collector, problem));
  };
  add.template operator()<kernels::AttentionSlots>(k.slots, p.slots);
  add.template operator()<kernels::Embedding>(k.embedding, p.embedding);
  keep(k.hc_first, want_hyper_connection(collector, p.hc_first));
  keep(k.hc_between, want_hyper_connection(collector, p.hc_between));
  linear(k.wq_a_wkv, p.wq_a_wkv);
  if (p.q_quant) add.template operator()<kernels::ActQuant>(k.q_quant, *p.q_quant);
  if (swa || hca) linear(k.wq_b, p.wq_b);
  add.template operator()<kernels::QNormRope>(k.q_norm_rope, p.q_norm_rope);
  add.template operator()<kernels::RopeKvAppend>(k.kv_append, p.kv_append);
  if (p.kv_keep) add.template operator()<kernels::RopeKvAppend>(k.kv_keep, *p.kv_keep);
  if (swa) keep(k.swa_attention, want_attention(collector, p.swa_attention));
  if (csa) {
    linear(k.wq_b_indexer, p.wq_b_indexer);
    keep(k.csa_linear, want_bf16_linear(collector, p.csa_linear));
    add.template operator()<kernels::CompressKv>(k.csa_compress, p.csa_compress);
    add.template operator()<kernels::CompressKv>(k.index_compress, p.index_compress);
    add.template operator()<kernels::IndexerQueries>(k.index_queries, p.index_queries);
    keep(k.index_scores, want_scores(collector, p.index_scores));
    add.template operator()<kernels::IndexerTopk>(k.index_topk, p.index_topk);
    keep(k.csa_attention, want_attention(collector, p.csa_attention));
  }
  if (hca) {
    keep(k.hca_linear, want_bf16_linear(collector, p.hca_linear));
    add.template operator()<kernels::CompressKv>(k.hca_compress, p.hca_compress);
    keep(k.hca_attention, want_attention(collector, p.hca_attention));
  }
  keep(k.wo_a, want_grouped_linear(collector, p.wo_a));
  if (p.o_quant) add.template operator()<kernels::ActQuant>(k.o_quant, *p.o_quant);
  linear(k.wo_b, p.wo_b);
  if (p.gate) keep(k.gate, want_bf16_linear(collector, *p.gate));
  const bool hashes = config.num_hash_layers > 0;
  const bool scores = config.num_hash_layers < config.num_layers;
  k.shared_with_router = shares_with_router(collector, p);
  if (k.shared_with_router) {
    using kernels::SharedExpertFew;
    if (hashes) {
      add.template operator()<SharedExpertFew>(k.hash_shared_router, *p.hash_shared_router);
    }
    if (scores) add.template operator()<SharedExpertFew>(k.shared_router, *p.shared_router);
  } else {
    if (hashes) add.template operator()<kernels::RouterTopk>(k.hash_router, p.hash_router);
    if (scores) add.template operator()<kernels::RouterTopk>(k.router, p.router);
  }
  const auto grouped =
      p.grouped_experts ? want_grouped(collector, p.grouped_experts->gate_up) : std::nullopt;
  if (grouped) {
    k.grouped = true;
    add.template operator()<kernels::ExpertOrder>(k.expert_order, p.grouped_experts->order);
    auto gather = p.grouped_experts->gather;
    gather.row_scales = has_grouped<kernels::MoePrefillSm90>(collector, p.grouped_experts->gate_up);
    add.template operator()<kernels::ExpertGather>(k.expert_gather, gather);
    keep(k.experts_up, *grouped);
    keep(k.experts_down, want_grouped(collector, p.grouped_experts->down).value());
    add.template operator()<kernels::ExpertJoin>(k.expert_join, p.grouped_experts->join);
  } else {
    add.template operator()<kernels::MoeDecode>(k.experts, p.experts);
  }
  if (!k.shared_with_router) {
    linear(k.shared_up, p.shared_up);
    add.template operator()<kernels::SwigluQuant>(k.shared_activation, p.shared_activation);
    linear(k.shared_down, p.shared_down);
  }
  if (p.rank_sum) {
    k.sums_at_once = sums_take_all_rows(collector, *p.rank_sum);
    const auto sum = [&](Slot& to, kernels::AllReduceProblem problem) {
      if (k.sums_at_once) {
        add.template operator()<kernels::AllReduceWide>(to, problem);
      } else {
        problem.tokens = std::min(problem.tokens, kMostSliceRows);
        add.template operator()<kernels::AllReduce>(to, problem);
      }
    };
    sum(k.embedding_sum, *p.embedding_sum);
    sum(k.attention_sum, *p.attention_sum);
    sum(k.rank_sum, *p.rank_sum);
    add.template operator()<kernels::AllGather>(k.logits, *p.logits);
  } else {
    add.template operator()<kernels::ExpertSum>(k.expert_sum, p.expert_sum);
  }
  add.template operator()<kernels::HcPost>(k.hc_last, p.hc_last);
  if (p.pick_rows) add.template operator()<kernels::Embedding>(k.pick_rows, *p.pick_rows);
  add.template operator()<kernels::HcPre>(k.hc_head, p.hc_head);
  keep(k.head, want_bf16_linear(collector, p.head));
  if (p.sample) add.template operator()<kernels::SampleTokens>(k.sample, *p.sample);
  return k;
}

}  // namespace ingot
