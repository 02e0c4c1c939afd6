#include "src/plan/kernel_requests.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

ModelConfig real_config() {
  return value_or_throw(read_model_config(test::golden_dir().parent_path().parent_path() /
                                          "configs/deepseek-v4-flash/config.json"));
}

std::set<std::string> families_in(const std::vector<kernels::VariantSet>& sets) {
  std::set<std::string> names;
  for (const auto& set : sets)
    names.insert(set.family);
  return names;
}

}  // namespace

TEST_CASE("a plan names the kernels of the model for its card", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto sets = kernel_requests(real_config(), {.batch_buckets = {1, 64}}, limits);
  REQUIRE(sets);
  const auto families = families_in(*sets);
  CHECK(families.contains("rms_norm"));
  CHECK(families.contains("fp8_linear"));
  CHECK(families.contains("fp8_linear_sm90"));
  for (const char* small : {"bf16_linear", "embedding", "grouped_linear", "hc_pre", "hc_post",
                            "q_norm_rope", "router_topk", "sample_tokens"})
    CHECK(families.contains(small));
  for (const auto& set : *sets) {
    CAPTURE(set.family);
    CHECK_FALSE(set.candidates.empty());
  }
  // The widths of the norms: hidden, q_lora_rank, head_dim, index_head_dim.
  std::set<std::int64_t> widths;
  for (const auto& set : *sets) {
    if (set.family == "rms_norm") widths.insert(set.candidates.front().params.front().value);
  }
  CHECK(widths == std::set<std::int64_t>{128, 512, 1024, 4096});
}

TEST_CASE("a plan for another architecture leaves out what does not run there", "[cpu][plan]") {
  const auto ampere = value_or_throw(cu::limits_of_arch("sm_80"));
  const auto sets = kernel_requests(real_config(), {}, ampere);
  REQUIRE(sets);
  CHECK_FALSE(families_in(*sets).contains("fp8_linear_sm90"));
  const auto turing = value_or_throw(cu::limits_of_arch("sm_75"));
  CHECK(kernel_requests(real_config(), {}, turing)->empty());
}

TEST_CASE("a plan has each set of variants once", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto few = kernel_requests(real_config(), {.batch_buckets = {1}}, limits);
  const auto same = kernel_requests(real_config(), {.batch_buckets = {1, 1}}, limits);
  REQUIRE(few);
  REQUIRE(same);
  CHECK(same->size() == few->size());
}

TEST_CASE("a plan refuses a split that the model does not have, and a model without blocks",
          "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto split = kernel_requests(real_config(), {.tp_size = 3}, limits);
  REQUIRE_FALSE(split);
  CHECK(split.error().code == ErrorCode::invalid_argument);
  CHECK_THAT(split.error().message, Catch::Contains("valid TP sizes: 1, 2, 4, 8"));
  ModelConfig odd = real_config();
  odd.q_lora_rank = 1000;
  const auto blocks = kernel_requests(odd, {}, limits);
  REQUIRE_FALSE(blocks);
  CHECK(blocks.error().code == ErrorCode::unsupported);
  CHECK_THAT(blocks.error().message, Catch::Contains("1000"));
}

TEST_CASE("a plan has hyper-connections for every place of the model", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto sets = kernel_requests(real_config(), {.batch_buckets = {1}}, limits);
  REQUIRE(sets);
  std::set<std::string> uses;
  for (const auto& set : *sets) {
    if (set.family != "hc_pre") continue;
    std::string use;
    for (const auto& param : set.candidates.front().params) {
      if (param.type == "bool" && param.value != 0) use += param.name + " ";
    }
    uses.insert(use);
  }
  CHECK(uses == std::set<std::string>{"QUANTIZE ", "AFTER_SUBLAYER QUANTIZE ", "HEAD ",
                                      "HEAD AFTER_SUBLAYER "});
  ModelConfig other = real_config();
  other.hc_mult = 2;
  const auto refused = kernel_requests(other, {}, limits);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::unsupported);
  CHECK_THAT(refused.error().message, Catch::Contains("2 hyper-connection streams"));
}
