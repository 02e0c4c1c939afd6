#include "src/plan/step_problems.hpp"

#include <algorithm>
#include <bit>

#include "kernel_templates/moe_weight_tiles.hpp"

namespace ingot {
namespace {

int next_power(int n) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(n, 1))));
}

/// Experts that kernels make room for: whole warps sort them.
int whole_warps(int experts) {
  return (experts + 31) / 32 * 32;
}

/// Scores of a row, as they lie.
std::int64_t index_entries(std::int64_t context) {
  return std::max<std::int64_t>((context / 4 + 3) / 4 * 4, 4);
}

}  // namespace

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

kernels::MoePrefillWorkspace grouped_workspace(const ModelConfig& config, int tp_size, int rows) {
  return {rows,
          kernels::moe_width(config.moe_intermediate_size / tp_size),
          config.hidden_size,
          whole_warps(config.num_experts),
          config.experts_per_token,
          tp_size == 1};
}

bool can_sample(const ModelConfig& config) {
  // Rows of logits lie one behind the other, and are read in words of four.
  return config.vocab_size % 4 == 0 && config.vocab_size <= kernels::SAMPLE_MOST_VOCABULARY;
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
                  .tokens = rows};
  p.hca_linear = {.rows = {config.head_dim, config.head_dim}, .cols = hidden, .tokens = rows};
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
                       .tokens = std::min(rows, kMostSliceRows),
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
