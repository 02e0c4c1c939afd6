#include "src/checkpoint/model_config.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"

using namespace ingot;
using nlohmann::json;

namespace {

json golden(const std::string& name) {
  return json::parse(test::read_file(test::golden_dir() / "checkpoint" / name));
}

Result<ModelConfig> parse(const json& config) {
  return parse_model_config(config.dump(), "config.json");
}

/// The error of a V4-Flash config with one field replaced.
Error error_with(const char* key, const json& value) {
  json config = golden("deepseek-v4-flash.json");
  config[json::json_pointer(key)] = value;
  const auto result = parse(config);
  REQUIRE(!result);
  return result.error();
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the V4-Flash config is read", "[cpu][checkpoint]") {
  const ModelConfig model = value_or_throw(
      read_model_config(test::golden_dir() / "checkpoint" / "deepseek-v4-flash.json"));
  CHECK(model.vocab_size == 129280);
  CHECK(model.hidden_size == 4096);
  CHECK(model.num_layers == 43);
  CHECK(model.num_mtp_layers == 1);
  CHECK(model.draft == DraftKind::mtp);
  CHECK(model.compress_ratios.size() == 44);
  CHECK(model.layer_kind(0) == LayerKind::swa);
  CHECK(model.layer_kind(2) == LayerKind::csa);
  CHECK(model.layer_kind(3) == LayerKind::hca);
  CHECK(model.layer_kind(42) == LayerKind::csa);
  CHECK(model.layer_kind(43) == LayerKind::swa);
  CHECK(model.routed_scaling_factor == 1.5f);
  CHECK(model.swiglu_limit == 10.0f);
  CHECK(model.rms_norm_eps == 1e-6f);
  CHECK(model.rope_theta == 10000);
  CHECK(model.compress_rope_theta == 160000);
  CHECK(model.yarn_factor == 16);
  CHECK(model.yarn_original_max_position == 65536);
  CHECK(model.max_position_embeddings == 1048576);
}

TEST_CASE("the V4-Pro config and the made-up ones are read", "[cpu][checkpoint]") {
  const ModelConfig pro = value_or_throw(parse(golden("deepseek-v4-pro.json")));
  CHECK(pro.num_layers == 61);
  CHECK(pro.layer_kind(0) == LayerKind::hca);
  CHECK(pro.num_experts == 384);
  CHECK(value_or_throw(parse(golden("tiny.json"))).num_layers == 5);
  CHECK(value_or_throw(parse(golden("tiny-tp.json"))).num_heads == 16);
}

TEST_CASE("every missing config field is named", "[cpu][checkpoint]") {
  const char* key = GENERATE(
      "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim",
      "qk_rope_head_dim", "q_lora_rank", "o_groups", "o_lora_rank", "sliding_window",
      "compress_ratios", "index_n_heads", "index_head_dim", "index_topk", "n_routed_experts",
      "num_experts_per_tok", "moe_intermediate_size", "num_hash_layers", "routed_scaling_factor",
      "swiglu_limit", "hc_mult", "hc_sinkhorn_iters", "hc_eps", "rms_norm_eps", "rope_theta",
      "compress_rope_theta", "rope_scaling", "max_position_embeddings", "model_type",
      "bos_token_id", "eos_token_id");
  CAPTURE(key);
  json config = golden("deepseek-v4-flash.json");
  config.erase(key);
  const auto result = parse(config);
  REQUIRE(!result);
  CHECK(result.error().code == ErrorCode::corrupt);
  CHECK(result.error().message ==
        fmt::format("reading config.json: {} is missing; take the config.json that belongs to the "
                    "weights, or correct it",
                    key));
}

TEST_CASE("a negative, absurd or non-integer config field is named", "[cpu][checkpoint]") {
  const char* key = GENERATE(
      "/vocab_size", "/hidden_size", "/num_hidden_layers", "/num_attention_heads", "/head_dim",
      "/qk_rope_head_dim", "/q_lora_rank", "/o_groups", "/o_lora_rank", "/sliding_window",
      "/index_n_heads", "/index_head_dim", "/index_topk", "/n_routed_experts",
      "/num_experts_per_tok", "/moe_intermediate_size", "/num_hash_layers", "/hc_mult",
      "/hc_sinkhorn_iters", "/max_position_embeddings", "/bos_token_id", "/eos_token_id",
      "/num_nextn_predict_layers", "/rope_scaling/original_max_position_embeddings");
  const json value = GENERATE(json(-1), json(2147483648), json(1000000000000000000),
                              json(18446744073709551615u), json(1e300), json(1.5), json(64.0),
                              json("64"), json(nullptr), json(true), json::array({64}));
  CAPTURE(key, value.dump());
  const Error error = error_with(key, value);
  CHECK(error.code == ErrorCode::corrupt);
  CHECK(contains(error.message, std::string(key).substr(std::string(key).rfind('/') + 1)));
  CHECK(!contains(error.message, "\n"));
}

TEST_CASE("a number that is no number or out of range is named", "[cpu][checkpoint]") {
  const char* key = GENERATE("/routed_scaling_factor", "/swiglu_limit", "/hc_eps", "/rms_norm_eps",
                             "/rope_theta", "/compress_rope_theta", "/rope_scaling/factor",
                             "/rope_scaling/beta_fast", "/rope_scaling/beta_slow");
  const json value = GENERATE(json(-1), json("1"), json(nullptr), json(1e300));
  CAPTURE(key, value.dump());
  const Error error = error_with(key, value);
  CHECK(error.code == ErrorCode::corrupt);
  CHECK(contains(error.message, std::string(key).substr(std::string(key).rfind('/') + 1)));
}

TEST_CASE("all bad config fields are named at once", "[cpu][checkpoint]") {
  json config = golden("deepseek-v4-flash.json");
  config.erase("hidden_size");
  config["head_dim"] = -512;
  config["index_topk"] = 512.5;
  config["rope_scaling"].erase("factor");
  config["scoring_func"] = "softmax";
  config["quantization_config"]["fmt"] = "e5m2";
  config["compress_ratios"][7] = 3;
  const auto result = parse(config);
  REQUIRE(!result);
  const std::string& message = result.error().message;
  CAPTURE(message);
  CHECK(contains(message, "reading config.json: 7 problems"));
  for (const char* part :
       {"\n  hidden_size is missing", "\n  head_dim is -512", "\n  index_topk is 512.5",
        "\n  rope_scaling.factor is missing", "\n  scoring_func is \"softmax\"",
        "\n  quantization_config.fmt is \"e5m2\"", "\n  compress_ratios entry 7 is 3"}) {
    CHECK(contains(message, part));
  }
}

TEST_CASE("sizes that do not fit each other are refused", "[cpu][checkpoint]") {
  const auto [key, value, word] = GENERATE(table<const char*, int, const char*>({
      {"/hidden_size", 4100, "multiple of 128"},
      {"/q_lora_rank", 1000, "multiple of 128"},
      {"/moe_intermediate_size", 2000, "multiple of 128"},
      {"/num_attention_heads", 63, "o_groups"},
      {"/qk_rope_head_dim", 512, "head_dim"},
      {"/qk_rope_head_dim", 63, "pairs"},
      {"/head_dim", 500, "groups of 64"},
      {"/index_head_dim", 96, "power of two"},
      {"/index_head_dim", 32, "qk_rope_head_dim"},
      {"/num_experts_per_tok", 257, "n_routed_experts"},
      {"/num_hash_layers", 44, "num_hidden_layers"},
      {"/n_routed_experts", 2048, "over all layers"},
      {"/eos_token_id", 129280, "vocabulary"},
      {"/eos_token_id", 0, "is 0, which is bos_token_id, too"},
  }));
  CAPTURE(key, value);
  const Error error = error_with(key, value);
  CHECK(error.code == ErrorCode::corrupt);
  CHECK(contains(error.message, word));
}

TEST_CASE("compress ratios of the wrong length or value are refused", "[cpu][checkpoint]") {
  json config = golden("deepseek-v4-flash.json");
  SECTION("too short") {
    config["compress_ratios"].erase(0);
  }
  SECTION("too long") {
    config["compress_ratios"].push_back(0);
  }
  SECTION("empty") {
    config["compress_ratios"] = json::array();
  }
  SECTION("not an array") {
    config["compress_ratios"] = 4;
  }
  SECTION("ratio 8") {
    config["compress_ratios"][4] = 8;
  }
  SECTION("ratio as text") {
    config["compress_ratios"][4] = "4";
  }
  SECTION("ratio as a fraction") {
    config["compress_ratios"][4] = 4.0;
  }
  const auto result = parse(config);
  REQUIRE(!result);
  CHECK(contains(result.error().message, "compress_ratios"));
}

TEST_CASE("other architectures and quantisations are named and refused", "[cpu][checkpoint]") {
  const auto [key, value] = GENERATE(table<const char*, json>({
      {"/model_type", "deepseek_v41"},
      {"/model_type", "deepseek_v3"},
      {"/model_type", 4},
      {"/architectures", json::array({"DeepseekV3ForCausalLM"})},
      {"/expert_dtype", "fp8"},
      {"/expert_dtype", nullptr},
      {"/quantization_config",
       json::object(
           {{"quant_method", "gptq"}, {"scale_fmt", "ue8m0"}, {"weight_block_size", {128, 128}}})},
      {"/quantization_config/quant_method", "awq"},
      {"/quantization_config/scale_fmt", "float"},
      {"/quantization_config/weight_block_size", json::array({32, 32})},
      {"/scoring_func", "sigmoid"},
      {"/topk_method", "greedy"},
      {"/norm_topk_prob", false},
      {"/hidden_act", "gelu"},
      {"/num_key_value_heads", 8},
      {"/n_shared_experts", 2},
      {"/tie_word_embeddings", true},
      {"/rope_scaling/type", "linear"},
  }));
  CAPTURE(key, value.dump());
  const Error error = error_with(key, value);
  CHECK(error.code == ErrorCode::unsupported);
  CHECK(exit_status(error.code) == 2);
  CHECK(contains(error.message, std::string(key).substr(std::string(key).rfind('/') + 1)));
}

TEST_CASE("a config without quantisation is refused", "[cpu][checkpoint]") {
  json config = golden("deepseek-v4-flash.json");
  config.erase("quantization_config");
  const auto result = parse(config);
  REQUIRE(!result);
  CHECK(result.error().code == ErrorCode::unsupported);
}

TEST_CASE("absent expert_dtype means FP4 and absent MTP count means none", "[cpu][checkpoint]") {
  json config = golden("deepseek-v4-flash.json");
  config["expert_dtype"] = "fp4";
  CHECK(parse(config));
  config.erase("num_nextn_predict_layers");
  config["compress_ratios"].erase(43);
  const ModelConfig model = value_or_throw(parse(config));
  CHECK(model.num_mtp_layers == 0);
  CHECK(model.draft == DraftKind::none);
}

TEST_CASE("dspark keys decide the draft module, whatever the MTP count says", "[cpu][checkpoint]") {
  json config = golden("deepseek-v4-flash.json");
  config["dspark_block_size"] = 5;
  config["compress_ratios"].push_back(0);
  config["compress_ratios"].push_back(0);
  config["num_nextn_predict_layers"] = GENERATE(1, 3);
  const ModelConfig model = value_or_throw(parse(config));
  CHECK(model.draft == DraftKind::dspark);
  CHECK(model.num_mtp_layers == 0);
  CHECK(model.num_layers == 43);
  CHECK(model.compress_ratios.size() == 43);
}

TEST_CASE("rope scaling may be missing only where no layer compresses", "[cpu][checkpoint]") {
  json config = golden("tiny.json");
  for (json& ratio : config["compress_ratios"])
    ratio = 0;
  config.erase("rope_scaling");
  config.erase("compress_rope_theta");
  CHECK(parse(config));
  config["compress_ratios"][2] = 4;
  const auto result = parse(config);
  REQUIRE(!result);
  CHECK(contains(result.error().message, "rope_scaling is missing"));
  CHECK(contains(result.error().message, "compress_rope_theta is missing"));
}

TEST_CASE("a config that is no JSON object is refused with the place", "[cpu][checkpoint]") {
  const std::string text =
      GENERATE(as<std::string>{}, "", "{", "[]", "null", "7", "{\"a\":1} x", "{\"a\":1,}",
               "\xff\xfe", "{\"vocab_size\":1,\"vocab_size\":2}", std::string(100000, '['),
               "{\"a\": 1e999}", std::string(100000, '{'));
  CAPTURE(text.substr(0, 50));
  const auto result = parse_model_config(text, "dir/config.json");
  REQUIRE(!result);
  CHECK(result.error().code == ErrorCode::corrupt);
  CHECK(contains(result.error().message, "dir/config.json"));
  CHECK(result.error().message.size() < 600);
}

TEST_CASE("a config file that cannot be opened names the file", "[cpu][checkpoint]") {
  const test::TempDir dir;
  const auto missing = read_model_config(dir / "config.json");
  REQUIRE(!missing);
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK(contains(missing.error().message, (dir / "config.json").string()));
  const auto folder = read_model_config(dir.path());
  REQUIRE(!folder);
  CHECK(folder.error().code == ErrorCode::invalid_argument);
}
