#include "src/plan/kernel_requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/attention_slots.space.hpp"
#include "kernel_templates/bf16_linear.space.hpp"
#include "kernel_templates/compress_kv.space.hpp"
#include "kernel_templates/embedding.space.hpp"
#include "kernel_templates/expert_sum.space.hpp"
#include "kernel_templates/fp8_linear.space.hpp"
#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "kernel_templates/grouped_linear.space.hpp"
#include "kernel_templates/hc_post.space.hpp"
#include "kernel_templates/hc_pre.space.hpp"
#include "kernel_templates/indexer_queries.space.hpp"
#include "kernel_templates/indexer_scores.space.hpp"
#include "kernel_templates/indexer_scores_sm90.space.hpp"
#include "kernel_templates/indexer_topk.space.hpp"
#include "kernel_templates/moe_decode.space.hpp"
#include "kernel_templates/q_norm_rope.space.hpp"
#include "kernel_templates/rms_norm.space.hpp"
#include "kernel_templates/rope_kv_append.space.hpp"
#include "kernel_templates/router_topk.space.hpp"
#include "kernel_templates/sample_tokens.space.hpp"
#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "kernel_templates/swiglu_quant.space.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {
namespace {

/// Up to so many tokens the router multiplies its gate itself.
constexpr int kMostGateTokens = 64;
/// Tokens of a launch of moe_decode.
constexpr int kMostExpertTokens = 256;

/// Collects the uses of kernels.
class Requests {
 public:
  explicit Requests(const cu::DeviceLimits& device) : device_(device) {}

  /// One use, which any of the families may serve.
  template <class First, class... Others>
  void add(const typename First::Problem& problem) {
    std::vector<kernels::VariantSet> sets = kernels::competing<First, Others...>(problem, device_);
    if (sets.empty()) return;
    TuningRequest request = kernels::tuning_request_of(problem, sets);
    const bool known = std::any_of(uses_.begin(), uses_.end(), [&](const KernelUse& other) {
      return other.tuning.problem == request.problem &&
             other.tuning.candidates == request.candidates;
    });
    if (!known) uses_.push_back({std::move(request), std::move(sets)});
  }

  const cu::DeviceLimits& device() const { return device_; }
  std::vector<KernelUse> take() { return std::move(uses_); }

 private:
  const cu::DeviceLimits& device_;
  std::vector<KernelUse> uses_;
};

/// Block-scaled FP8 linears of one rank. Weights that read one input are one launch.
void add_fp8_linears(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  struct Linear {
    std::array<int, 3> rows;
    int cols;
  };
  const int tp = scope.tp_size;
  const int inter = config.moe_intermediate_size / tp;  // of the shared expert
  const Linear linears[] = {
      {{config.q_lora_rank, config.head_dim}, config.hidden_size},      // wq_a, wkv
      {{config.num_heads * config.head_dim / tp}, config.q_lora_rank},  // wq_b
      {{config.index_heads * config.index_head_dim},
       config.q_lora_rank},                                               // indexer wq_b, not split
      {{config.hidden_size}, config.o_groups * config.o_lora_rank / tp},  // wo_b
      {{inter, inter}, config.hidden_size},                               // shared w1, w3
      {{config.hidden_size}, inter},                                      // shared w2
  };
  // Up to so many tokens quantising the input inside the linear may pay.
  constexpr int kMostBf16Tokens = 16;
  for (const int tokens : scope.batch_buckets) {
    for (const Linear& linear : linears) {
      for (const bool x_bf16 : {false, true}) {
        if (x_bf16 && tokens > kMostBf16Tokens) continue;
        const kernels::Fp8LinearProblem problem{
            .rows = linear.rows, .cols = linear.cols, .tokens = tokens, .x_bf16 = x_bf16};
        requests.add<kernels::Fp8Linear, kernels::Fp8LinearSm90>(problem);
      }
      requests.add<kernels::ActQuant>({.tokens = tokens, .cols = linear.cols, .tiled = true});
    }
  }
}

/// Linears of bf16 inputs: the compressors (one launch a layer), the router's logits for many
/// tokens, the head, and the first half of the attention's output projection.
void add_bf16_linears(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  const int tp = scope.tp_size;
  for (const int tokens : scope.batch_buckets) {
    const auto add = [&](std::array<int, kernels::BF16_SEGMENTS> rows) {
      requests.add<kernels::Bf16Linear>(
          {.rows = rows, .cols = config.hidden_size, .tokens = tokens});
    };
    std::set<LayerKind> kinds;
    for (int layer = 0; layer < static_cast<int>(config.compress_ratios.size()); ++layer)
      kinds.insert(config.layer_kind(layer));
    // A CSA row holds halves of two blocks; the indexer has keys and the weights of all its heads.
    if (kinds.contains(LayerKind::csa)) {
      add({config.index_heads, 2 * config.head_dim, 2 * config.head_dim, 2 * config.index_head_dim,
           2 * config.index_head_dim});
    }
    if (kinds.contains(LayerKind::hca)) add({config.head_dim, config.head_dim});
    if (tokens > kMostGateTokens) add({config.num_experts});
    add({config.vocab_size / tp});
    requests.add<kernels::GroupedLinear>(
        {.groups = config.o_groups / tp,
         .group_rows = config.o_lora_rank,
         .cols = config.num_heads * config.head_dim / config.o_groups,
         .tokens = tokens});
  }
}

/// Hyper-connections: in front of the first sublayer, between sublayers (which takes the output of
/// the one before along), in front of the final norm with and without such an output; and behind
/// the last sublayer of a model whose streams are read again.
void add_hyper_connections(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  for (const int tokens : scope.batch_buckets) {
    for (const bool after : {false, true}) {
      requests.add<kernels::HcPre>({.hidden = config.hidden_size,
                                    .tokens = tokens,
                                    .after_sublayer = after,
                                    .quantize = true});
      requests.add<kernels::HcPre>(
          {.hidden = config.hidden_size, .tokens = tokens, .head = true, .after_sublayer = after});
    }
    requests.add<kernels::HcPost>({.hidden = config.hidden_size, .tokens = tokens});
  }
}

/// The router of score layers and of hash layers. It multiplies the gate itself for as many tokens
/// as gain by it.
void add_routers(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  for (const int tokens : scope.batch_buckets) {
    for (const bool hash : {false, true}) {
      if (hash && config.num_hash_layers == 0) continue;
      requests.add<kernels::RouterTopk>({.hidden = config.hidden_size,
                                         .experts = config.num_experts,
                                         .top = config.experts_per_token,
                                         .tokens = tokens,
                                         .hash = hash,
                                         .gate = tokens <= kMostGateTokens});
    }
  }
}

/// The compressed-KV path: compressors of the layer kinds that the model has, and, for CSA, the
/// indexer. All index heads on every rank: scores need no reduction, and all ranks select alike.
void add_compressed_kv(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  constexpr int kKeyPage = 64;  // index keys; the selected entries' pages are as long
  const auto& ratios = config.compress_ratios;
  const bool csa = std::find(ratios.begin(), ratios.end(), 4) != ratios.end();
  const bool hca = std::find(ratios.begin(), ratios.end(), 128) != ratios.end();
  for (const int sequences : scope.batch_buckets) {
    if (hca) {
      requests.add<kernels::CompressKv>({.sequences = sequences, .ratio = 128});
    }
    if (!csa) continue;
    constexpr int kKeyBytes = kernels::INDEX_CODE_BYTES + kernels::INDEX_SCALE_BYTES;
    requests.add<kernels::CompressKv>({.sequences = sequences});
    requests.add<kernels::CompressKv>({.sequences = sequences,
                                       .index_keys = true,
                                       .page_entries = kKeyPage,
                                       .page_bytes = kKeyPage * kKeyBytes,
                                       .entry_stride = kernels::INDEX_CODE_BYTES,
                                       .scales_beside = false});
    requests.add<kernels::IndexerQueries>({.rows = sequences, .heads = config.index_heads});
    for (const std::int64_t context : scope.context_buckets) {
      const int entries = static_cast<int>(std::max<std::int64_t>(context / 4, 1));
      const kernels::IndexerScoresProblem scores{.rows = sequences,
                                                 .heads = config.index_heads,
                                                 .entries = entries,
                                                 .page_entries = kKeyPage,
                                                 .page_bytes = kKeyPage * kKeyBytes};
      if (kernels::IndexerScoresSm90::takes(scores)) {
        requests.add<kernels::IndexerScores, kernels::IndexerScoresSm90>(scores);
      } else {
        requests.add<kernels::IndexerScores>(scores);
      }
      requests.add<kernels::IndexerTopk>({.rows = sequences,
                                          .entries = entries,
                                          .topk = config.index_topk,
                                          .page_entries = kernels::KV_PAGE_ENTRIES});
    }
  }
}

/// Slots of the list of all compressed entries of an HCA layer.
int hca_slots(std::int64_t context) {
  return static_cast<int>(std::max<std::int64_t>(context / 128, 1));
}

/// Attention over the window alone (ratio 0), with the indexer's choice (4), with all entries of a
/// context bucket (128).
void add_attention(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  const auto add = [&](int rows, int selected) {
    const kernels::SparseMlaDecodeProblem problem{.rows = rows,
                                                  .heads = config.num_heads / scope.tp_size,
                                                  .window_slots = config.sliding_window,
                                                  .selected_slots = selected};
    // Whichever is added first is the default.
    if (kernels::SparseMlaDecodeSm90::is_default(problem, requests.device())) {
      requests.add<kernels::SparseMlaDecodeSm90, kernels::SparseMlaDecode>(problem);
    } else {
      requests.add<kernels::SparseMlaDecode, kernels::SparseMlaDecodeSm90>(problem);
    }
  };
  const std::set<int> ratios(config.compress_ratios.begin(), config.compress_ratios.end());
  for (const int sequences : scope.batch_buckets) {
    if (ratios.contains(0)) add(sequences, 0);
    if (ratios.contains(4)) add(sequences, config.index_topk);
    for (const std::int64_t context : scope.context_buckets) {
      if (ratios.contains(128)) add(sequences, hca_slots(context));
    }
  }
}

/// The lists of keys, once a step for all layers.
void add_attention_slots(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  constexpr int kPage = kernels::KV_PAGE_ENTRIES;
  const int whole_pages = (config.sliding_window + kPage - 1) / kPage * kPage;
  const auto& ratios = config.compress_ratios;
  const bool hca = std::find(ratios.begin(), ratios.end(), 128) != ratios.end();
  for (const int rows : scope.batch_buckets) {
    for (const std::int64_t context : scope.context_buckets) {
      requests.add<kernels::AttentionSlots>(
          {.rows = rows,
           .window = config.sliding_window,
           .ring = scope.window_ring == 0 ? whole_pages : scope.window_ring,
           .page_entries = kPage,
           .hca_slots = hca ? hca_slots(context) : 0});
    }
  }
}

/// The shared expert's activation between its linears, the routed experts - larger batches are
/// prefill's - and the sum of both.
void add_experts(Requests& requests, const ModelConfig& config, const PlanScope& scope) {
  const int inter = config.moe_intermediate_size / scope.tp_size;
  for (const int tokens : scope.batch_buckets) {
    requests.add<kernels::SwigluQuant>({.inter = inter, .tokens = tokens});
    requests.add<kernels::ExpertSum>({.hidden = config.hidden_size, .tokens = tokens});
    if (tokens > kMostExpertTokens) continue;
    requests.add<kernels::MoeDecode>({.batch = tokens,
                                      .inter = inter,
                                      .hidden = config.hidden_size,
                                      .experts = config.num_experts,
                                      .topk = config.experts_per_token,
                                      .whole_experts = scope.tp_size == 1});
  }
}

/// A ring keeps what its sequence still sees, and starts with a page.
Result<void> require_whole_ring(const ModelConfig& config, int ring) {
  if (ring == 0 || (ring >= config.sliding_window && ring % kernels::KV_PAGE_ENTRIES == 0))
    return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("a window ring of {} entries does not fit the model: it must be a "
                          "multiple of {} and at least the window of {}",
                          ring, kernels::KV_PAGE_ENTRIES, config.sliding_window));
}

/// The attention kernels take whole tiles of heads.
Result<void> require_whole_head_tiles(const ModelConfig& config, int tp) {
  constexpr int kHeadTile = 8;
  if (config.num_heads / tp % kHeadTile == 0) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("there are no GPU kernels for this model: {} attention heads on each of "
                          "{} ranks are no multiple of {}",
                          config.num_heads / tp, tp, kHeadTile));
}

/// The kernels of the compressed-KV path are written for these widths.
Result<void> require_compressed_widths(const ModelConfig& config) {
  const bool csa = std::find(config.compress_ratios.begin(), config.compress_ratios.end(), 4) !=
                   config.compress_ratios.end();
  if (config.head_dim != kernels::compress_kv_dims(false) ||
      config.rope_dim != kernels::COMPRESS_ROPE_DIMS) {
    return fail(ErrorCode::unsupported,
                fmt::format("there are no GPU kernels for this model: KV entries of {} dimensions, "
                            "{} of them rope, instead of {} and {}",
                            config.head_dim, config.rope_dim, kernels::compress_kv_dims(false),
                            kernels::COMPRESS_ROPE_DIMS));
  }
  if (csa && (config.index_head_dim != kernels::INDEX_DIMS || config.index_heads % 8 != 0 ||
              config.index_topk % 4 != 0)) {
    return fail(ErrorCode::unsupported,
                fmt::format("there are no GPU kernels for this model: an indexer of {} heads of {} "
                            "dimensions and top {}; heads must be a multiple of 8, of {} "
                            "dimensions, and the top a multiple of 4",
                            config.index_heads, config.index_head_dim, config.index_topk,
                            kernels::INDEX_DIMS));
  }
  return {};
}

/// FP8 weights are scaled by blocks of 128 x 128, and the kernels read whole blocks.
Result<void> require_whole_blocks(const ModelConfig& config, int tp) {
  constexpr int kBlock = 128;
  for (const int size :
       {config.hidden_size, config.q_lora_rank, config.head_dim,
        config.index_heads * config.index_head_dim, config.o_groups * config.o_lora_rank / tp,
        config.moe_intermediate_size / tp}) {
    if (size % kBlock != 0) {
      return fail(ErrorCode::unsupported,
                  fmt::format("there are no GPU kernels for this model: a linear's side of {} on "
                              "each of {} ranks is no multiple of {}",
                              size, tp, kBlock));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<KernelUse>> kernel_uses(const ModelConfig& config, const PlanScope& scope,
                                           const cu::DeviceLimits& device) {
  const std::vector<int> valid = valid_tp_sizes(config);
  if (std::find(valid.begin(), valid.end(), scope.tp_size) == valid.end()) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the model cannot be split over {} ranks; valid TP sizes: {}",
                            scope.tp_size, fmt::join(valid, ", ")));
  }
  if (config.hc_mult != kernels::HC_STREAMS) {
    return fail(ErrorCode::unsupported,
                fmt::format("there are no GPU kernels for this model: it has {} hyper-connection "
                            "streams, the kernels take {}",
                            config.hc_mult, kernels::HC_STREAMS));
  }
  if (auto whole = require_whole_blocks(config, scope.tp_size); !whole) {
    return tl::unexpected(whole.error());
  }
  if (auto widths = require_compressed_widths(config); !widths) {
    return tl::unexpected(widths.error());
  }
  if (auto heads = require_whole_head_tiles(config, scope.tp_size); !heads) {
    return tl::unexpected(heads.error());
  }
  if (auto ring = require_whole_ring(config, scope.window_ring); !ring) {
    return tl::unexpected(ring.error());
  }
  Requests requests(device);
  // Norms: before each sublayer and at the end (hidden), of the query's low-rank part, of the KV
  // latent and compressed entries (head_dim), of the indexer's keys. None of them is split.
  for (const int width :
       {config.hidden_size, config.q_lora_rank, config.head_dim, config.index_head_dim}) {
    for (const int rows : scope.batch_buckets) {
      requests.add<kernels::RmsNorm>({.hidden = width, .rows = rows});
    }
  }
  add_fp8_linears(requests, config, scope);
  add_bf16_linears(requests, config, scope);
  add_hyper_connections(requests, config, scope);
  add_routers(requests, config, scope);
  for (const int tokens : scope.batch_buckets) {
    // One rank replicates the rows at once; several sum them first (and the MTP block norms them).
    for (const int streams : {1, config.hc_mult}) {
      requests.add<kernels::Embedding>(
          {.hidden = config.hidden_size, .streams = streams, .tokens = tokens});
    }
    requests.add<kernels::SampleTokens>({.vocabulary = config.vocab_size, .rows = tokens});
    requests.add<kernels::QNormRope>(
        {.dims = config.head_dim, .heads = config.num_heads / scope.tp_size, .tokens = tokens});
  }
  requests.add<kernels::RopeKvAppend>({.normalize = true});
  add_attention_slots(requests, config, scope);
  add_attention(requests, config, scope);
  add_experts(requests, config, scope);
  add_compressed_kv(requests, config, scope);
  return requests.take();
}

Result<std::vector<kernels::VariantSet>> kernel_requests(const ModelConfig& config,
                                                         const PlanScope& scope,
                                                         const cu::DeviceLimits& device) {
  auto uses = kernel_uses(config, scope, device);
  if (!uses) return tl::unexpected(uses.error());
  std::vector<kernels::VariantSet> sets;
  for (KernelUse& use : *uses) {
    for (kernels::VariantSet& set : use.families) {
      const bool known = std::any_of(sets.begin(), sets.end(), [&](const auto& other) {
        return other.candidates == set.candidates;
      });
      if (!known) sets.push_back(std::move(set));
    }
  }
  return sets;
}

}  // namespace ingot
