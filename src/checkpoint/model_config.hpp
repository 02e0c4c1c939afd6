#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// What a layer attends to besides its sliding window; decided by its entry of `compress_ratios`.
enum class LayerKind {
  swa,  ///< ratio 0: sliding window only
  csa,  ///< ratio 4: compressed blocks of 4 tokens, top-k of them chosen by the indexer
  hca,  ///< ratio 128: compressed blocks of 128 tokens, all of them
};

/// Which draft module the checkpoint carries. Only `mtp` is ever loaded.
enum class DraftKind { none, mtp, dspark };

/// The shape of a DeepSeek-V4 model, as `config.json` gives it. Every size is validated: positive,
/// bounded, and consistent with the others, so users of this type check nothing again.
/// Source: model specification section 1; names follow the `config.json` keys.
struct ModelConfig {
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;      ///< num_hidden_layers, without draft blocks
  int num_mtp_layers = 0;  ///< num_nextn_predict_layers where the draft is MTP, else 0
  int num_heads = 0;       ///< query heads; there is one KV head
  int head_dim = 0;
  int rope_dim = 0;  ///< qk_rope_head_dim: the last dims of a head
  int q_lora_rank = 0;
  int o_groups = 0;
  int o_lora_rank = 0;
  int sliding_window = 0;
  std::vector<int> compress_ratios;  ///< one per layer, then one per MTP block: 0, 4 or 128

  int index_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;

  int num_experts = 0;
  int experts_per_token = 0;
  int moe_intermediate_size = 0;
  int num_hash_layers = 0;  ///< the first layers choose experts by token id
  float routed_scaling_factor = 0;
  float swiglu_limit = 0;  ///< clamp of gate (above) and up (both sides); 0 = no clamp

  int hc_mult = 0;  ///< hyper-connection streams
  int hc_sinkhorn_iters = 0;
  float hc_eps = 0;
  float rms_norm_eps = 0;

  double rope_theta = 0;           ///< layers of ratio 0
  double compress_rope_theta = 0;  ///< all other layers, with YaRN
  double yarn_factor = 1;
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  int yarn_original_max_position = 0;
  std::int64_t max_position_embeddings = 0;

  int bos_token_id = 0;
  int eos_token_id = 0;
  DraftKind draft = DraftKind::none;

  /// Kind of layer `layer`; the MTP block k is layer `num_layers + k`.
  LayerKind layer_kind(int layer) const;
  int ratio(int layer) const { return compress_ratios[static_cast<std::size_t>(layer)]; }
};

/// Reads and validates a `config.json`. Every problem found is named in the one error message
/// (a missing, negative, absurd or non-integer field, ratios of the wrong length …).
/// Errors: not_found, io, corrupt (JSON or values), unsupported (another architecture or
/// quantisation, named).
[[nodiscard]] Result<ModelConfig> read_model_config(const std::filesystem::path& config_json);
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view json,
                                                     std::string_view origin);

}  // namespace ingot
