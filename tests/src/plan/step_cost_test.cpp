#include "src/plan/step_cost.hpp"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

ModelConfig real_config() {
  return value_or_throw(read_model_config(test::golden_dir().parent_path().parent_path() /
                                          "configs/deepseek-v4-flash/config.json"));
}

}  // namespace

// The numbers are those of the model specification, section 7.
TEST_CASE("the weights that a step reads are those of the specification", "[cpu][plan]") {
  const ModelConfig config = real_config();
  const WeightReads reads = weight_reads(config, 1);
  CHECK(static_cast<double>(reads.fixed_bytes) / 1e9 ==
        Approx(6.708949336 + 1.059332116).epsilon(1e-7));
  CHECK(reads.expert_bytes == 13369344U);
  CHECK(reads.bytes(expected_experts(config, 1)) / 1e9 == Approx(11.22).epsilon(0.001));
  CHECK(reads.bytes(expected_experts(config, 16)) / 1e9 == Approx(54.24).epsilon(0.001));
  CHECK(reads.bytes(expected_experts(config, 64)) / 1e9 == Approx(122.7).epsilon(0.001));
  CHECK(expected_experts(config, 64) == Approx(199.9).epsilon(0.001));
}

TEST_CASE("a rank of eight reads an eighth of what is split", "[cpu][plan]") {
  const ModelConfig config = real_config();
  const WeightReads whole = weight_reads(config, 1), rank = weight_reads(config, 8);
  CHECK(rank.expert_bytes == whole.expert_bytes / 8);
  CHECK(rank.fixed_bytes > whole.fixed_bytes / 8);
  CHECK(rank.fixed_bytes < whole.fixed_bytes / 2);
}

TEST_CASE("the context that a token reads is that of the specification", "[cpu][plan]") {
  const ModelConfig config = real_config();
  const auto megabytes = [&](std::int64_t length) {
    return static_cast<double>(context_reads(config, length)) / 1e6;
  };
  CHECK(megabytes(8 << 10) == Approx(13.2).epsilon(0.01));
  CHECK(megabytes(128 << 10) == Approx(68.3).epsilon(0.01));
  CHECK(megabytes(1 << 20) == Approx(479.5).epsilon(0.01));
  CHECK(context_reads(config, 0) == 0);
}

TEST_CASE("a token multiplies as much as the specification says", "[cpu][plan]") {
  const ModelConfig config = real_config();
  CHECK(weight_operations(config, 1, true).all() / 1e9 == Approx(26.54).epsilon(0.002));
  const double head = 2.0 * config.vocab_size * config.hidden_size;
  CHECK(weight_operations(config, 1, true).all() - weight_operations(config, 1, false).all() ==
        Approx(head).epsilon(0.001));
  const Operations near = context_operations(config, 1, 8 << 10);
  CHECK(near.bf16 / 1e9 == Approx(2.30).epsilon(0.01));
  CHECK(near.fp8 / 1e9 == Approx(0.70).epsilon(0.01));
  const Operations far = context_operations(config, 1, 128 << 10);
  CHECK(far.bf16 / 1e9 == Approx(4.82).epsilon(0.01));
  CHECK(far.fp8 / 1e9 == Approx(11.3).epsilon(0.01));
  CHECK(context_operations(config, 8, 8 << 10).bf16 == Approx(near.bf16 / 8));
}
