#include "src/plan/step_problems.hpp"

#include <algorithm>

#include "kernel_templates/moe_weight_tiles.hpp"

namespace ingot {
namespace {

/// Experts that kernels make room for: whole warps sort them.
int whole_warps(int experts) {
  return (experts + 31) / 32 * 32;
}

}  // namespace

kernels::MoePrefillWorkspace grouped_workspace(const ModelConfig& config, int tp_size, int rows) {
  return {rows,
          kernels::moe_width(config.moe_intermediate_size / tp_size),
          config.hidden_size,
          whole_warps(config.num_experts),
          config.experts_per_token,
          tp_size == 1};
}

StepProblems step_problems(const ModelConfig& config, int tp, const StepBucket& bucket,
                           bool one_shot) {
  const int rows = bucket.rows;
  const int hidden = config.hidden_size;
  const int heads = config.num_heads / tp;
  const int inter = config.moe_intermediate_size / tp;
  const bool inline_quant = deciding_rows(bucket) <= kMostBf16InputTokens;
  const int csa_entries = static_cast<int>(std::max<std::int64_t>(bucket.context / 4, 1));
  const int index_dims = config.index_heads * config.index_head_dim;
  const int o_cols = config.o_groups * config.o_lora_rank / tp;

  StepProblems p;
  p.slots = {.rows = rows,
             .window = config.sliding_window,
             .ring = kWindowRing,
             .wide = bucket.wide(),
             .hca_slots = hca_list_slots(config, bucket)};
  p.embedding = {.hidden = hidden, .streams = tp == 1 ? config.hc_mult : 1, .tokens = rows};
  p.hc_first = {.hidden = hidden, .tokens = rows, .quantize = true};
  p.hc_between = {.hidden = hidden, .tokens = rows, .after_sublayer = true, .quantize = true};
  p.wq_a_wkv = {.rows = {config.q_lora_rank, config.head_dim}, .cols = hidden, .tokens = rows};
  if (!inline_quant) p.q_quant = {.tokens = rows, .cols = config.q_lora_rank, .tiled = true};
  p.wq_b = {.rows = {heads * config.head_dim},
            .cols = config.q_lora_rank,
            .tokens = rows,
            .x_bf16 = inline_quant};
  p.wq_b_indexer = p.wq_b;
  p.wq_b_indexer.rows[1] = index_dims;
  p.q_norm_rope = {.dims = config.head_dim, .heads = heads, .tokens = rows};
  p.kv_append = {.tokens = rows, .normalize = true, .latent = config.q_lora_rank};
  if (bucket.wide()) p.kv_keep = {.tokens = rows, .normalize = true};
  p.csa_linear = {.rows = {config.index_heads, 2 * config.head_dim, 2 * config.head_dim,
                           2 * config.index_head_dim, 2 * config.index_head_dim},
                  .cols = hidden,
                  .tokens = rows,
                  .beside = runs_beside(bucket)};
  p.hca_linear = {.rows = {config.head_dim, config.head_dim},
                  .cols = hidden,
                  .tokens = rows,
                  .beside = runs_beside(bucket)};
  p.csa_compress = {.sequences = bucket.sequences,
                    .tokens = bucket.sequence_rows,
                    .ratio = 4,
                    .state_rows = kCompressorRows};
  p.index_compress = p.csa_compress;
  p.index_compress.index_keys = true;
  p.index_compress.page_bytes = kIndexPageBytes;
  p.index_compress.entry_stride = kernels::INDEX_CODE_BYTES;
  p.index_compress.scales_beside = false;
  p.hca_compress = p.csa_compress;
  p.hca_compress.ratio = 128;
  p.index_queries = {.rows = rows, .heads = config.index_heads};
  const int index_rows = index_slice_rows(bucket);
  p.index_scores = {.rows = index_rows,
                    .heads = config.index_heads,
                    .entries = csa_entries,
                    .page_entries = kernels::KV_PAGE_ENTRIES,
                    .page_bytes = kIndexPageBytes};
  p.index_topk = {.rows = index_rows,
                  .entries = csa_entries,
                  .topk = config.index_topk,
                  .page_entries = kernels::KV_PAGE_ENTRIES};
  p.swa_attention = {
      .rows = rows, .heads = heads, .window_slots = config.sliding_window, .selected_slots = 0};
  p.csa_attention = p.swa_attention;
  p.csa_attention.selected_slots = config.index_topk;
  p.hca_attention = p.swa_attention;
  p.hca_attention.selected_slots = hca_list_slots(config, bucket);
  p.wo_a = {.groups = config.o_groups / tp,
            .group_rows = config.o_lora_rank,
            .cols = config.num_heads * config.head_dim / config.o_groups,
            .tokens = rows};
  if (!inline_quant) p.o_quant = {.tokens = rows, .cols = o_cols, .tiled = true};
  p.wo_b = {.rows = {hidden}, .cols = o_cols, .tokens = rows, .x_bf16 = inline_quant};
  const bool router_gate = deciding_rows(bucket) <= kMostGateTokens;
  if (!router_gate) p.gate = {.rows = {config.num_experts}, .cols = hidden, .tokens = rows};
  p.router = {.hidden = hidden,
              .experts = config.num_experts,
              .top = config.experts_per_token,
              .tokens = rows,
              .gate = router_gate};
  p.hash_router = p.router;
  p.hash_router.hash = true;
  p.experts = {.batch = std::min(rows, kMostSliceRows),
               .inter = kernels::moe_width(inter),
               .hidden = hidden,
               .experts = whole_warps(config.num_experts),
               .topk = config.experts_per_token,
               .whole_experts = tp == 1,
               .batch_free = bucket.batch_free};
  if (bucket.wide()) {
    const int top = config.experts_per_token;
    const kernels::MoePrefillProblem product{.tokens = rows,
                                             .inter = p.experts.inter,
                                             .hidden = hidden,
                                             .experts = p.experts.experts,
                                             .topk = top,
                                             .whole_experts = tp == 1};
    p.grouped_experts = {
        .order = {.experts = p.experts.experts, .topk = top},
        .gather = {.hidden = hidden, .topk = top, .tokens = rows},
        .gate_up = product,
        .down = product,
        .join = {.hidden = hidden, .topk = top, .whole_experts = tp == 1, .tokens = rows}};
    p.grouped_experts->down.down = true;
  }
  p.shared_up = {.rows = {inter, inter}, .cols = hidden, .tokens = rows};
  p.shared_activation = {.inter = inter, .tokens = rows};
  p.shared_down = {.rows = {hidden}, .cols = inter, .tokens = rows};
  if (!bucket.batch_free && rows <= kernels::SharedExpertFew::kMostTokens) {
    p.shared_router = {.hidden = hidden,
                       .inter = inter,
                       .experts = config.num_experts,
                       .top = config.experts_per_token,
                       .tokens = rows};
    p.hash_shared_router = p.shared_router;
    p.hash_shared_router->hash = true;
  }
  p.expert_sum = {.hidden = hidden, .tokens = rows};
  p.hc_last = {.hidden = hidden, .tokens = rows};
  if (bucket.logit_rows < rows) {
    p.pick_rows = {.hidden = config.hc_mult * hidden, .streams = 1, .tokens = bucket.logit_rows};
  }
  const int logit_rows = std::max(bucket.logit_rows, 1);
  p.hc_head = {.hidden = hidden, .tokens = logit_rows, .head = true};
  p.head = {.rows = {config.vocab_size / tp}, .cols = hidden, .tokens = logit_rows};
  if (bucket.sampled) p.sample = {.vocabulary = config.vocab_size, .rows = logit_rows};
  if (tp > 1) {
    p.embedding_sum = {.ranks = tp,
                       .hidden = hidden,
                       .tokens = rows,
                       .has_sums = false,
                       .has_values = true,
                       .copies = config.hc_mult,
                       .one_shot = one_shot};
    p.attention_sum = p.embedding_sum;
    p.attention_sum->copies = 1;
    p.rank_sum = p.attention_sum;
    p.rank_sum->has_sums = true;
    p.logits = {.ranks = tp, .share = config.vocab_size / tp, .rows = logit_rows};
  }
  return p;
}

}  // namespace ingot
