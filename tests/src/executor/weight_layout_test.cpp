#include "src/executor/weight_layout.hpp"

#include <catch2/catch.hpp>

#include "kernel_templates/moe_weight_tiles.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

ModelConfig config_of(const std::string& name) {
  return value_or_throw(read_model_config(test::golden_dir() / "checkpoint" / (name + ".json")));
}

/// Stored bytes of all that a rank owns of the trunk and the first draft block.
std::uint64_t stored_bytes(const ModelConfig& config, int tp_rank, int tp_size) {
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : tensor_table(config)) {
    const TensorRange range = rank_range(spec, tp_rank, tp_size);
    const auto stored = static_cast<std::uint64_t>(range_bytes(range, spec.dtype));
    // Ids shrink from eight bytes to two.
    bytes += spec.kind == TensorKind::token_experts ? stored / 4 : stored;
  }
  return bytes;
}

}  // namespace

TEST_CASE("a rank's weights take the bytes of its tensors, aligned", "[cpu][executor]") {
  const auto* name = GENERATE("deepseek-v4-flash", "tiny-tp");
  const int tp_size = GENERATE(1, 2, 4, 8);
  CAPTURE(name, tp_size);
  const ModelConfig config = config_of(name);
  const int rank = tp_size - 1;
  const executor::WeightOptions options{.tp_rank = rank, .tp_size = tp_size};
  const auto placement = executor::place_weights(config, options, 0);
  CHECK(executor::device_weight_bytes(config, options) == placement.bytes);

  std::uint64_t end = 0, used = 0;
  for (const executor::WeightPart& part : placement.parts) {
    CHECK(part.offset % 256 == 0);
    CHECK(part.offset >= end);
    CHECK(part.offset - end < 256);
    end = part.offset + part.bytes;
    used += part.bytes;
  }
  CHECK(end <= placement.bytes);
  const std::uint64_t frequencies = 2 * 4 * static_cast<std::uint64_t>(config.rope_dim / 2);
  // Experts narrower than their kernels are filled up by zeros.
  const int inter = config.moe_intermediate_size / tp_size;
  const auto filled =
      static_cast<std::uint64_t>(config.num_experts) *
      static_cast<std::uint64_t>(config.num_layers + config.num_mtp_layers) *
      (kernels::moe_tile_bytes(3 * (kernels::moe_width(inter) - inter), config.hidden_size));
  CHECK(used == stored_bytes(config, rank, tp_size) + frequencies + filled);
}

TEST_CASE("views are addresses from the base on", "[cpu][executor]") {
  const ModelConfig config = config_of("tiny");
  constexpr std::uint64_t kBase = 0x7f00'0000'0000;
  const auto placement = executor::place_weights(config, {}, kBase);
  CHECK(reinterpret_cast<std::uint64_t>(placement.views.embedding.values) == kBase);
  CHECK(reinterpret_cast<std::uint64_t>(placement.views.compress_frequencies) ==
        kBase + placement.parts.back().offset);
}

TEST_CASE("fewer layers keep their kinds and the draft block its own", "[cpu][executor]") {
  const ModelConfig config = config_of("deepseek-v4-flash");
  const auto placement = executor::place_weights(config, {.max_layers = 4}, 256);
  const executor::WeightViews& views = placement.views;
  REQUIRE(views.layers.size() == 4);
  for (int i = 0; i < 4; ++i) {
    const executor::Layer& layer = views.layers[static_cast<std::size_t>(i)];
    CHECK((layer.compressor.ape != nullptr) == (config.layer_kind(i) != LayerKind::swa));
    CHECK((layer.indexer.wq_b.tiles != nullptr) == (config.layer_kind(i) == LayerKind::csa));
    CHECK((layer.experts.token_experts != nullptr) == (i < config.num_hash_layers));
  }
  REQUIRE(views.draft);
  CHECK(views.draft->layer.compressor.ape == nullptr);
  CHECK(views.draft->layer.experts.bias != nullptr);
  CHECK(placement.bytes < executor::device_weight_bytes(config, {}) / 7);

  const auto one = executor::place_weights(config, {.max_layers = 1}, 256);
  REQUIRE(one.views.draft);
  CHECK(one.views.draft->layer.experts.bias != nullptr);
}

TEST_CASE("ranks that a model does not have are refused", "[cpu][executor]") {
  const ModelConfig config = config_of("tiny-tp");
  const executor::WeightOptions options =
      GENERATE(values<executor::WeightOptions>({{.tp_rank = 0, .tp_size = 3},
                                                {.tp_rank = 2, .tp_size = 2},
                                                {.tp_rank = -1, .tp_size = 2},
                                                {.tp_rank = 0, .tp_size = 0}}));
  CAPTURE(options.tp_rank, options.tp_size);
  try {
    (void)executor::place_weights(config, options, 0);
    FAIL("placed");
  } catch (const EngineError& error) {
    CHECK(error.error().code == ErrorCode::invalid_argument);
  }
}

TEST_CASE("a matrix that is not whole tiles is refused by its name", "[cpu][executor]") {
  ModelConfig config = config_of("tiny");
  config.q_lora_rank = 192;
  try {
    (void)executor::device_weight_bytes(config, {});
    FAIL("placed");
  } catch (const EngineError& error) {
    CHECK(error.error().code == ErrorCode::unsupported);
    CHECK_THAT(error.error().message, Catch::Contains("layers.0.attn.wq_a.weight") &&
                                          Catch::Contains("blocks of 128 x 128"));
  }
}
