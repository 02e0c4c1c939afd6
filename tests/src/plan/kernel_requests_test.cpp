#include "src/plan/kernel_requests.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/fp8_linear.space.hpp"
#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "kernel_templates/memory_read.space.hpp"
#include "kernel_templates/rms_norm.space.hpp"
#include "kernel_templates/rope_kv_append.space.hpp"
#include "kernel_templates/sparse_mla_decode.space.hpp"
#include "kernel_templates/split_kv_combine.space.hpp"
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

TEST_CASE("families that may serve one use compete in one tuning, each use once", "[cpu][plan]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto uses = kernel_uses(real_config(), {.batch_buckets = {16, 64}}, limits);
  REQUIRE(uses);
  std::set<std::string> titles;
  int shared = 0;
  for (const KernelUse& use : *uses) {
    CAPTURE(use.tuning.title());
    CHECK(titles.insert(use.tuning.title()).second);
    std::size_t candidates = 0;
    for (const auto& set : use.families)
      candidates += set.candidates.size();
    CHECK(use.tuning.candidates.size() == candidates);
    CHECK(use.tuning.candidates.front() == use.families.front().candidates.front());
    for (const auto& [rule, count] : use.tuning.rejections)
      CHECK(rule.find(": ") != std::string::npos);
    shared +=
        use.tuning.families() == std::vector<std::string>{"fp8_linear", "fp8_linear_sm90"} ? 1 : 0;
  }
  CHECK(shared > 0);
  // A bucket is a problem of its own, also where its candidates are another's.
  CHECK(titles.contains("rms_norm hidden=4096 rows=16"));
  CHECK(titles.contains("rms_norm hidden=4096 rows=64"));
}

TEMPLATE_TEST_CASE("a family's problem comes back from its fields", "[cpu][plan]",
                   kernels::ActQuant, kernels::Fp8Linear, kernels::Fp8LinearSm90,
                   kernels::MemoryRead, kernels::RmsNorm, kernels::RopeKvAppend,
                   kernels::SparseMlaDecode, kernels::SplitKvCombine) {
  std::set<std::string> seen;
  for (const auto& problem : TestType::sample_problems()) {
    const auto fields = problem_fields(problem);
    CHECK(seen.insert(describe(fields)).second);
    const auto back = problem_from<typename TestType::Problem>(fields);
    REQUIRE(back);
    CHECK(problem_fields(*back) == fields);
  }
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
