#include <algorithm>

#include "kernel_templates/fp8_linear.space.hpp"
#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "kernel_templates/indexer_scores.space.hpp"
#include "kernel_templates/indexer_scores_sm90.space.hpp"
#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "src/executor/step_program.hpp"

namespace ingot::executor {
namespace {

using Slot = KernelLibrary::Slot;

Slot want_attention(KernelLibrary& library, const kernels::SparseMlaDecodeProblem& problem) {
  // Whichever comes first is the default.
  if (kernels::SparseMlaDecodeSm90::is_default(problem, library.limits())) {
    return library.want<kernels::SparseMlaDecodeSm90, kernels::SparseMlaDecode>(problem);
  }
  return library.want<kernels::SparseMlaDecode, kernels::SparseMlaDecodeSm90>(problem);
}

Slot want_scores(KernelLibrary& library, const kernels::IndexerScoresProblem& problem) {
  if (kernels::IndexerScoresSm90::takes(problem)) {
    return library.want<kernels::IndexerScores, kernels::IndexerScoresSm90>(problem);
  }
  return library.want<kernels::IndexerScores>(problem);
}

}  // namespace

StepKernels StepKernels::want(KernelLibrary& library, const ModelConfig& config,
                              const StepProblems& p) {
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
  const auto linear = [&](Slot& to, const kernels::Fp8LinearProblem& problem) {
    keep(to, library.want<kernels::Fp8Linear, kernels::Fp8LinearSm90>(problem));
  };
  keep(k.slots, library.want<kernels::AttentionSlots>(p.slots));
  keep(k.embedding, library.want<kernels::Embedding>(p.embedding));
  keep(k.hc_first, library.want<kernels::HcPre>(p.hc_first));
  keep(k.hc_between, library.want<kernels::HcPre>(p.hc_between));
  linear(k.wq_a_wkv, p.wq_a_wkv);
  keep(k.q_norm, library.want<kernels::RmsNorm>(p.q_norm));
  if (p.q_quant) keep(k.q_quant, library.want<kernels::ActQuant>(*p.q_quant));
  if (swa || hca) linear(k.wq_b, p.wq_b);
  keep(k.q_norm_rope, library.want<kernels::QNormRope>(p.q_norm_rope));
  keep(k.kv_append, library.want<kernels::RopeKvAppend>(p.kv_append));
  if (swa) keep(k.swa_attention, want_attention(library, p.swa_attention));
  if (csa) {
    linear(k.wq_b_indexer, p.wq_b_indexer);
    keep(k.csa_linear, library.want<kernels::Bf16Linear>(p.csa_linear));
    keep(k.csa_compress, library.want<kernels::CompressKv>(p.csa_compress));
    keep(k.index_compress, library.want<kernels::CompressKv>(p.index_compress));
    keep(k.index_queries, library.want<kernels::IndexerQueries>(p.index_queries));
    keep(k.index_scores, want_scores(library, p.index_scores));
    keep(k.index_topk, library.want<kernels::IndexerTopk>(p.index_topk));
    keep(k.csa_attention, want_attention(library, p.csa_attention));
  }
  if (hca) {
    keep(k.hca_linear, library.want<kernels::Bf16Linear>(p.hca_linear));
    keep(k.hca_compress, library.want<kernels::CompressKv>(p.hca_compress));
    keep(k.hca_attention, want_attention(library, p.hca_attention));
  }
  keep(k.wo_a, library.want<kernels::GroupedLinear>(p.wo_a));
  if (p.o_quant) keep(k.o_quant, library.want<kernels::ActQuant>(*p.o_quant));
  linear(k.wo_b, p.wo_b);
  if (p.gate) keep(k.gate, library.want<kernels::Bf16Linear>(*p.gate));
  if (config.num_hash_layers > 0) {
    keep(k.hash_router, library.want<kernels::RouterTopk>(p.hash_router));
  }
  if (config.num_hash_layers < config.num_layers) {
    keep(k.router, library.want<kernels::RouterTopk>(p.router));
  }
  keep(k.expert_quant, library.want<kernels::ActQuant>(p.expert_quant));
  keep(k.experts, library.want<kernels::MoeDecode>(p.experts));
  linear(k.shared_up, p.shared_up);
  keep(k.shared_activation, library.want<kernels::SwigluQuant>(p.shared_activation));
  linear(k.shared_down, p.shared_down);
  keep(k.expert_sum, library.want<kernels::ExpertSum>(p.expert_sum));
  keep(k.hc_last, library.want<kernels::HcPost>(p.hc_last));
  if (p.pick_rows) keep(k.pick_rows, library.want<kernels::Embedding>(*p.pick_rows));
  keep(k.hc_head, library.want<kernels::HcPre>(p.hc_head));
  keep(k.head, library.want<kernels::Bf16Linear>(p.head));
  return k;
}

KernelScratch scratch_of(const KernelLibrary& library, const StepKernels& kernels) {
  KernelScratch most;
  for (const Slot slot : kernels.all) {
    const KernelScratch& one = library.at(slot).scratch;
    most.any = std::max(most.any, one.any);
    most.any_more = std::max(most.any_more, one.any_more);
    most.ones = std::max(most.ones, one.ones);
    most.ones_more = std::max(most.ones_more, one.ones_more);
  }
  return most;
}

}  // namespace ingot::executor
