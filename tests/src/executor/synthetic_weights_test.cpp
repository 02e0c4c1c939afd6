#include "src/executor/synthetic_weights.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <set>

#include "kernel_templates/moe_decode.args.h"
#include "kernel_templates/moe_weight_tiles.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rope.hpp"
#include "tests/support/memory_weight_store.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

/// The made-up weights of a small model in host memory. Its experts are more than one block.
struct Synthetic {
  ModelConfig config;
  executor::WeightPlacement placement;
  test::MemoryWeightStore store;

  static ModelConfig model() {
    ModelConfig config =
        value_or_throw(read_model_config(test::golden_dir() / "checkpoint" / "tiny-tp.json"));
    config.num_experts = 24;  // hash layers too take any number of them
    config.experts_per_token = 6;
    return config;
  }
  explicit Synthetic(const executor::WeightOptions& options)
      : config(model()), store(executor::device_weight_bytes(config, options)) {
    placement = executor::place_weights(config, options, store.base());
    executor::fill_synthetic(placement, store);
  }
};

float at(const float* values, std::size_t i) {
  return values[i];
}
float at(const kernels::bf16* values, std::size_t i) {
  return reference::bf16_value(values[i].bits);
}

/// The root of the mean square of finite values; NaN where one is not.
template <class T>
double magnitude(const T* values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += std::pow(static_cast<double>(at(values, i)), 2);
  return std::sqrt(sum / static_cast<double>(count));
}

/// What a weight does to inputs of magnitude one.
double gain(const executor::Bf16Matrix& matrix) {
  return magnitude(matrix.values,
                   static_cast<std::size_t>(matrix.rows) * static_cast<std::size_t>(matrix.cols)) *
         std::sqrt(matrix.cols);
}
double gain(const executor::Fp8Matrix& matrix) {
  const auto elements =
      static_cast<std::size_t>(matrix.rows) * static_cast<std::size_t>(matrix.cols);
  double sum = 0;
  for (std::size_t i = 0; i < elements; ++i)  // a tile and its scale have one place
    sum += std::pow(static_cast<double>(reference::e4m3_value(matrix.tiles[i].bits)) *
                        static_cast<double>(reference::e8m0_value(matrix.scales[i / 16384].bits)),
                    2);
  return std::sqrt(sum / static_cast<double>(matrix.rows));
}
double gain(const kernels::u8* jobs, std::size_t rows, std::size_t columns) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  double sum = 0;
  for (std::size_t j = 0; j < rows * columns / 4096; ++j) {
    const auto* job = reinterpret_cast<const std::byte*>(jobs) + j * kernels::MOE_JOB_BYTES;
    for (int row = 0; row < 32; ++row)
      for (int col = 0; col < 128; ++col)
        sum += std::pow(kMagnitudes[kernels::moe_job_code(job, row, col) & 7] *
                            std::ldexp(1.0, kernels::moe_job_scale(job, row, col / 32) - 127),
                        2);
  }
  return std::sqrt(sum / static_cast<double>(rows));
}

void check_layer(const executor::Layer& layer, const ModelConfig& config, std::size_t inter) {
  const auto experts = static_cast<std::size_t>(config.num_experts);
  const auto hidden = static_cast<std::size_t>(config.hidden_size);
  const auto plain = Catch::Detail::Approx(1).margin(0.7);
  for (const auto* matrix : {&layer.wq_a, &layer.wkv, &layer.wq_b, &layer.wo_a,
                             &layer.experts.shared_gate, &layer.experts.shared_up})
    CHECK(gain(*matrix) == plain);
  CHECK(gain(layer.wo_b) > 0.05);  // these add to the residual stream
  CHECK(gain(layer.wo_b) < 0.6);
  CHECK(gain(layer.experts.gate_up, experts * 2 * inter, hidden) == plain);
  CHECK(gain(layer.experts.down, experts * hidden, inter) > 0.05);
  CHECK(gain(layer.experts.down, experts * hidden, inter) < 0.6);
  CHECK(magnitude(layer.attention_norm, hidden) == Approx(1).margin(0.1));
  CHECK(gain(layer.experts.gate) > 0.5);
  CHECK(gain(layer.experts.gate) < 6);
  CHECK(magnitude(layer.hc_ffn.fn, 24 * 4 * hidden) > 0);
  CHECK(magnitude(layer.hc_ffn.base, 24) < 1);
}

}  // namespace

TEST_CASE("synthetic weights keep activations of order one", "[cpu][executor]") {
  const int tp_size = GENERATE(1, 2);
  const Synthetic made({.tp_rank = tp_size - 1, .tp_size = tp_size});
  const executor::WeightViews& views = made.placement.views;
  for (const executor::Layer& layer : views.layers) {
    check_layer(layer, made.config,
                static_cast<std::size_t>(made.config.moe_intermediate_size / tp_size));
    if (layer.compressor.ape != nullptr) CHECK(gain(layer.compressor.wkv) < 3);
    if (layer.indexer.wq_b.tiles != nullptr) CHECK(gain(layer.indexer.wq_b) < 1.7);
  }
  CHECK(gain(views.draft->e_proj) < 1.7);
  CHECK(gain(views.head) < 12);
  const std::vector<float> plain = reference::rope_frequencies(made.config, 0);
  CHECK(std::equal(plain.begin(), plain.end(), views.plain_frequencies));
  const std::vector<float> yarn = reference::rope_frequencies(made.config, 4);
  CHECK(std::equal(yarn.begin(), yarn.end(), views.compress_frequencies));
}

TEST_CASE("synthetic tokens have experts that exist, each once", "[cpu][executor]") {
  const Synthetic made({});
  const executor::Experts& experts = made.placement.views.layers[0].experts;
  REQUIRE(experts.token_experts != nullptr);
  std::set<int> all;
  for (int token = 0; token < made.config.vocab_size; ++token) {
    const kernels::u16* chosen = experts.token_experts + 6 * token;
    const std::set<int> different(chosen, chosen + 6);
    CHECK(different.size() == 6);
    all.insert(different.begin(), different.end());
  }
  CHECK(all.size() == 24);
  CHECK(*all.rbegin() == 23);
}

TEST_CASE("synthetic weights leave nothing as it was", "[cpu][executor]") {
  const Synthetic made({});
  // The store began as 0xff: NaN in every format.
  for (const executor::WeightPart& part : made.placement.parts) {
    INFO(part.tensor.name);
    const std::byte* bytes = made.store.data() + part.offset;
    const std::size_t tail = static_cast<std::size_t>(std::min<std::uint64_t>(part.bytes, 4));
    CHECK(std::count(bytes + part.bytes - tail, bytes + part.bytes, std::byte{0xff}) !=
          static_cast<std::ptrdiff_t>(tail));
  }
}
