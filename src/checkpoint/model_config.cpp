#include "src/checkpoint/model_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/mapped_file.hpp"
#include "src/checkpoint/config_fields.hpp"
#include "src/checkpoint/problems.hpp"
#include "src/checkpoint/strict_json.hpp"

namespace ingot {
namespace {

using nlohmann::json;

// Bounds far above every model of the family, and low enough that no product of three sizes
// overflows 64 bits and no size overflows an int.
constexpr std::int64_t kMostWidth = std::int64_t{1} << 20;  // hidden, ranks, vocabulary entries …
constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 24;
constexpr std::int64_t kMostLayers = 1024;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 14;
constexpr std::int64_t kMostExperts = std::int64_t{1} << 16;
constexpr std::int64_t kMostPositions = INT32_MAX;
// Over all layers; V4-Pro has 23,808. Keeps the list of expected tensors under 100 MB.
constexpr std::int64_t kMostExpertsInAll = std::int64_t{1} << 16;
// FP8 activations are quantised in groups of 128 along K, so every quantised K is a multiple of it
// (model specification 3.1).
constexpr int kActivationGroup = 128;

/// Why this is no model that we run; nullopt if it may be one. Nothing else is worth reporting
/// about a config of another architecture: its fields mean other things.
std::optional<std::string> foreign_flavour(const json& config) {
  const auto type = config.find("model_type");
  if (type != config.end() && *type == "deepseek_v41") {
    return "model_type is \"deepseek_v41\" (DeepSeek-V4.1), another architecture; give "
           "a checkpoint of deepseek_v4 (DeepSeek-V4-Flash, -Pro and other sizes)";
  }
  if (type == config.end() && config.contains("n_layers") && config.contains("dim")) {
    return "this is the config of the model's own inference code; give the folder with the "
           "config.json that has model_type";
  }
  if (type != config.end() && *type != "deepseek_v4") {
    return fmt::format(
        "model_type is {}; only \"deepseek_v4\" is supported; give a "
        "checkpoint of DeepSeek-V4-Flash, -Pro or another size",
        shown(*type));
  }
  const auto architectures = config.find("architectures");
  if (architectures != config.end() && *architectures != json::array({"DeepseekV4ForCausalLM"})) {
    return fmt::format(
        "architectures is {}; only [\"DeepseekV4ForCausalLM\"] is supported; "
        "give a checkpoint of DeepSeek-V4-Flash, -Pro or another size",
        shown(*architectures));
  }
  return std::nullopt;
}

void read_sizes(ConfigFields& fields, ModelConfig& model) {
  model.vocab_size = fields.size("vocab_size", kMostVocabulary);
  model.hidden_size = fields.size("hidden_size", kMostWidth);
  model.num_heads = fields.size("num_attention_heads", kMostHeads);
  model.head_dim = fields.size("head_dim", kMostHeads);
  model.rope_dim = fields.size("qk_rope_head_dim", kMostHeads);
  model.q_lora_rank = fields.size("q_lora_rank", kMostWidth);
  model.o_groups = fields.size("o_groups", kMostHeads);
  model.o_lora_rank = fields.size("o_lora_rank", kMostWidth);
  model.sliding_window = fields.size("sliding_window", kMostWidth);
  model.index_heads = fields.size("index_n_heads", kMostHeads);
  model.index_head_dim = fields.size("index_head_dim", kMostHeads);
  model.index_topk = fields.size("index_topk", kMostWidth);
  model.num_experts = fields.size("n_routed_experts", kMostExperts);
  model.experts_per_token = fields.size("num_experts_per_tok", kMostExperts);
  model.moe_intermediate_size = fields.size("moe_intermediate_size", kMostWidth);
  model.num_hash_layers = fields.size("num_hash_layers", kMostLayers, 0);
  model.hc_mult = fields.size("hc_mult", 64);
  model.hc_sinkhorn_iters = fields.size("hc_sinkhorn_iters", 1000);
  model.max_position_embeddings = fields.integer("max_position_embeddings", 1, kMostPositions);
  model.bos_token_id = fields.size("bos_token_id", kMostVocabulary, 0);
  model.eos_token_id = fields.size("eos_token_id", kMostVocabulary, 0);
}

void read_numbers(ConfigFields& fields, ModelConfig& model) {
  constexpr double kSmallestEps = 1e-30;
  model.routed_scaling_factor =
      static_cast<float>(fields.number("routed_scaling_factor", 1e-6, 1e6));
  model.swiglu_limit = static_cast<float>(fields.number("swiglu_limit", 0, 1e6));
  model.hc_eps = static_cast<float>(fields.number("hc_eps", kSmallestEps, 1));
  model.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", kSmallestEps, 1));
  model.rope_theta = fields.number("rope_theta", 1, 1e12);
}

/// Settings that the architecture has, with the one value that we run.
void check_settings(ConfigFields& fields) {
  fields.expect("num_key_value_heads", 1);
  fields.expect("n_shared_experts", 1);
  fields.expect("scoring_func", "sqrtsoftplus");
  fields.expect("topk_method", "noaux_tc");
  fields.expect("norm_topk_prob", true);
  fields.expect("hidden_act", "silu");
  fields.expect("attention_bias", false);
  fields.expect("tie_word_embeddings", false);
}

void check_quantization(ConfigFields& fields, const json& config, Problems& problems) {
  if (fields.has("expert_dtype") && config["expert_dtype"] != "fp4") {
    fields.unsupported("expert_dtype",
                       fmt::format("is {} (as in -Base checkpoints); only \"fp4\" experts are "
                                   "supported",
                                   shown(config["expert_dtype"])));
  }
  if (!fields.has("quantization_config")) {
    fields.unsupported("quantization_config",
                       "is missing; only FP8 (e4m3, ue8m0 scales, 128x128 blocks) is supported");
    return;
  }
  const json& quantization = config["quantization_config"];
  if (!quantization.is_object()) {
    fields.bad("quantization_config", fmt::format("is {}, not an object", shown(quantization)));
    return;
  }
  ConfigFields inner(quantization, "quantization_config.", problems);
  inner.require("quant_method", "fp8");
  inner.expect("fmt", "e4m3");
  inner.require("scale_fmt", "ue8m0");
  inner.require("weight_block_size", json::array({128, 128}));
  inner.expect("activation_scheme", "dynamic");
}

bool has_dspark_draft(const json& config) {
  for (const auto& item : config.items()) {
    if (item.key().starts_with("dspark_")) return true;
  }
  return false;
}

/// Reads the number of layers, decides the draft module, and reads compress_ratios, whose length
/// depends on both.
void read_layers(ConfigFields& fields, const json& config, ModelConfig& model,
                 const Problems& problems) {
  const std::size_t problems_before = problems.size();
  model.num_layers = fields.size("num_hidden_layers", kMostLayers);
  const bool dspark = has_dspark_draft(config);
  // DSpark configs still carry num_nextn_predict_layers; there it does not count MTP blocks.
  if (dspark) {
    model.draft = DraftKind::dspark;
  } else if (fields.has("num_nextn_predict_layers")) {
    model.num_mtp_layers = fields.size("num_nextn_predict_layers", 16, 0);
    model.draft = model.num_mtp_layers > 0 ? DraftKind::mtp : DraftKind::none;
  }
  const bool layers_known = problems.size() == problems_before;
  if (!fields.has("compress_ratios")) {
    fields.bad("compress_ratios", "is missing");
    return;
  }
  const json& ratios = config["compress_ratios"];
  if (!ratios.is_array()) {
    fields.bad("compress_ratios", fmt::format("is {}, not an array", shown(ratios)));
    return;
  }
  const auto layers = static_cast<std::size_t>(model.num_layers + model.num_mtp_layers);
  if (layers_known && (dspark ? ratios.size() < layers : ratios.size() != layers)) {
    fields.bad(
        "compress_ratios",
        fmt::format("has {} entries; {} layers and {} MTP blocks need {}{}", ratios.size(),
                    model.num_layers, model.num_mtp_layers, dspark ? "at least " : "", layers));
  }
  for (std::size_t i = 0; i < std::min(layers, ratios.size()); ++i) {
    const json& ratio = ratios[i];
    if (!ratio.is_number_integer() || (ratio != 0 && ratio != 4 && ratio != 128)) {
      fields.bad("compress_ratios",
                 fmt::format("entry {} is {}; layers have ratio 0, 4 or 128", i, shown(ratio)));
      return;  // one such entry tells the story; a thousand would hide the others
    }
    model.compress_ratios.push_back(ratio.get<int>());
  }
}

/// YaRN of the layers with a ratio; a model without such layers needs none.
void read_yarn(ConfigFields& fields, const json& config, ModelConfig& model, Problems& problems) {
  const bool needed = std::any_of(model.compress_ratios.begin(), model.compress_ratios.end(),
                                  [](int ratio) { return ratio != 0; });
  if (needed || fields.has("compress_rope_theta")) {
    model.compress_rope_theta = fields.number("compress_rope_theta", 1, 1e12);
  }
  const auto found = config.find("rope_scaling");
  if (found == config.end() || found->is_null()) {
    if (needed) fields.bad("rope_scaling", "is missing");
    return;
  }
  if (!found->is_object()) {
    fields.bad("rope_scaling", fmt::format("is {}, not an object", shown(*found)));
    return;
  }
  ConfigFields inner(*found, "rope_scaling.", problems);
  inner.require(inner.has("rope_type") ? "rope_type" : "type", "yarn");
  model.yarn_factor = inner.number("factor", 1, 1e6);
  model.yarn_beta_fast = inner.number("beta_fast", 1e-6, 1e6);
  model.yarn_beta_slow = inner.number("beta_slow", 1e-6, 1e6);
  model.yarn_original_max_position = inner.size("original_max_position_embeddings", kMostPositions);
  if (inner.has("beta_fast") && inner.has("beta_slow") &&
      model.yarn_beta_fast < model.yarn_beta_slow) {
    inner.bad("beta_fast", "is less than beta_slow");
  }
}

/// Sizes that must fit each other. Run only when every size was read, else it would accuse
/// stand-ins.
void check_consistency(ConfigFields& fields, const ModelConfig& model) {
  const auto multiple = [&](std::string_view key, std::int64_t value, int of, const char* why) {
    if (value % of != 0) {
      fields.bad(key, fmt::format("is {}, not a multiple of {} ({})", value, of, why));
    }
  };
  const char* group = "activations are quantised in groups of 128";
  multiple("hidden_size", model.hidden_size, kActivationGroup, group);
  multiple("q_lora_rank", model.q_lora_rank, kActivationGroup, group);
  multiple("moe_intermediate_size", model.moe_intermediate_size, kActivationGroup, group);
  multiple("o_groups·o_lora_rank", std::int64_t{model.o_groups} * model.o_lora_rank,
           kActivationGroup, group);
  multiple("num_attention_heads", model.num_heads, model.o_groups, "o_groups");
  multiple("qk_rope_head_dim", model.rope_dim, 2, "rope turns pairs");
  if (model.rope_dim >= model.head_dim) {
    fields.bad("qk_rope_head_dim",
               fmt::format("is {}, not less than head_dim {}", model.rope_dim, model.head_dim));
  } else {
    multiple("head_dim - qk_rope_head_dim", model.head_dim - model.rope_dim, 64,
             "the KV cache is quantised in groups of 64");
  }
  multiple("index_head_dim", model.index_head_dim, 32, "indexer keys are FP4 in groups of 32");
  if (!std::has_single_bit(static_cast<unsigned>(model.index_head_dim))) {
    fields.bad("index_head_dim",
               fmt::format("is {}, not a power of two (Hadamard transform)", model.index_head_dim));
  }
  if (model.rope_dim > model.index_head_dim) {
    fields.bad("qk_rope_head_dim", fmt::format("is {}, more than index_head_dim {}", model.rope_dim,
                                               model.index_head_dim));
  }
  if (model.experts_per_token > model.num_experts) {
    fields.bad("num_experts_per_tok", fmt::format("is {}, more than n_routed_experts {}",
                                                  model.experts_per_token, model.num_experts));
  }
  const std::int64_t experts_in_all =
      std::int64_t{model.num_layers + model.num_mtp_layers} * model.num_experts;
  if (experts_in_all > kMostExpertsInAll) {
    fields.bad(
        "n_routed_experts",
        fmt::format("is {}, which makes {} experts over all layers; at most {} are supported",
                    model.num_experts, experts_in_all, kMostExpertsInAll));
  }
  if (model.num_hash_layers > model.num_layers) {
    fields.bad("num_hash_layers", fmt::format("is {}, more than num_hidden_layers {}",
                                              model.num_hash_layers, model.num_layers));
  }
  for (const auto& [key, id] : {std::pair{"bos_token_id", model.bos_token_id},
                                std::pair{"eos_token_id", model.eos_token_id}}) {
    if (id >= model.vocab_size) {
      fields.bad(key, fmt::format("is {}, outside the vocabulary of {}", id, model.vocab_size));
    }
  }
  if (model.bos_token_id == model.eos_token_id) {
    fields.bad("eos_token_id",
               fmt::format("is {}, which is bos_token_id, too", model.eos_token_id));
  }
}

}  // namespace

LayerKind ModelConfig::layer_kind(int layer) const {
  switch (ratio(layer)) {
    case 4:
      return LayerKind::csa;
    case 128:
      return LayerKind::hca;
    default:
      return LayerKind::swa;
  }
}

Result<ModelConfig> parse_model_config(std::string_view text, std::string_view origin) {
  constexpr std::string_view kRemedy =
      "; take the config.json that belongs to the weights, or correct it";
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // the largest known has 3 KB
  if (text.size() > kMostBytes) {
    return fail(ErrorCode::corrupt, fmt::format("reading {}: it has {} bytes, no model config has "
                                                "more than {}{}",
                                                origin, text.size(), kMostBytes, kRemedy));
  }
  const std::string attempt = fmt::format("reading {}", origin);
  const Result<json> parsed = parse_strict_json(text, attempt + ": the file");
  if (!parsed) {
    Error error = parsed.error();
    error.message += kRemedy;
    return tl::unexpected(std::move(error));
  }
  const json& config = *parsed;
  if (!config.is_object()) {
    return fail(ErrorCode::corrupt,
                fmt::format("{}: it holds {}, not an object{}", attempt, shown(config), kRemedy));
  }
  if (const auto foreign = foreign_flavour(config)) {
    return fail(ErrorCode::unsupported, fmt::format("{}: {}", attempt, *foreign));
  }
  Problems problems;
  ConfigFields fields(config, "", problems);
  if (!fields.has("model_type")) fields.bad("model_type", "is missing");
  ModelConfig model;
  read_sizes(fields, model);
  read_layers(fields, config, model, problems);
  const bool sizes_read = problems.empty();
  read_numbers(fields, model);
  read_yarn(fields, config, model, problems);
  check_settings(fields);
  check_quantization(fields, config, problems);
  if (sizes_read) check_consistency(fields, model);
  if (!problems.empty()) {
    Error error = problems.to_error(attempt);
    error.message += kRemedy;
    return tl::unexpected(std::move(error));
  }
  return model;
}

Result<ModelConfig> read_model_config(const std::filesystem::path& config_json) {
  const Result<MappedFile> file = MappedFile::open(config_json);
  if (!file) return tl::unexpected(file.error());
  return parse_model_config(file->text(), config_json.string());
}

}  // namespace ingot
