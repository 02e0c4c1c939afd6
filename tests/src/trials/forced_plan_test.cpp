// What a user forces, against the kernels of a real plan.
#include <algorithm>
#include <catch2/catch.hpp>

#include "src/cli/kernel_overrides.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::vector<TuningRequest> plan_with(const Overrides& overrides) {
  const ModelConfig config = value_or_throw(read_model_config(
      test::golden_dir().parent_path().parent_path() / "configs/deepseek-v4-flash/config.json"));
  return value_or_throw(
             trials::tuning_plan(config, 1, trials::deployed_buckets({1, 64}, {256}, {4096}, true),
                                 value_or_throw(cu::limits_of_arch("sm_90a")), overrides))
      .requests;
}

Overrides forced(const std::vector<std::string>& pins,
                 const std::vector<std::string>& disabled = {}) {
  return value_or_throw(read_overrides(pins, disabled));
}

/// Requests that a family may serve.
int served(const std::vector<TuningRequest>& plan, const std::string& family) {
  return static_cast<int>(std::ranges::count_if(plan, [&](const TuningRequest& request) {
    return std::ranges::count(request.families(), family) > 0;
  }));
}

const std::string kPerHead = "sparse_mla_decode_simt";

}  // namespace

TEST_CASE("attention one head to a block serves where a user pins it, and nowhere else",
          "[cpu][trials]") {
  CHECK(served((plan_with({})), kPerHead) == 0);
  const Overrides pinned = forced({kPerHead + ".WARPS=8"});
  const auto plan = (plan_with(pinned));
  CHECK(served(plan, kPerHead) > 0);
  CHECK(served(plan, kPerHead) == served(plan, "sparse_mla_decode"));
  CHECK(value_or_throw(pinned.check(plan)).empty());
  for (const TuningRequest& request : plan) {
    const auto families = request.families();
    if (std::ranges::count(families, kPerHead) == 0) continue;
    for (const std::size_t candidate : value_or_throw(pinned.allowed(request))) {
      CHECK(request.candidates[candidate].family == kPerHead);
      CHECK(jit::describe(request.candidates[candidate]).find("WARPS=8") != std::string::npos);
    }
  }
}

TEST_CASE("a pin that no kernel of the plan can meet is refused with the values that are legal",
          "[cpu][trials]") {
  const Overrides pinned = forced({kPerHead + ".WARPS=3"});
  const auto checked = pinned.check((plan_with(pinned)));
  REQUIRE(!checked);
  CHECK(checked.error().code == ErrorCode::invalid_argument);
  CHECK_THAT(checked.error().message,
             Catch::Contains("WARPS=3") && Catch::Contains("legal values of WARPS here: 4, 8"));
  // A tile that fits some sizes has a say there, and a sentence tells of the others.
  const Overrides tile = forced({"grouped_linear.TOKENS=64"});
  const auto sentences = value_or_throw(tile.check((plan_with(tile))));
  REQUIRE(sentences.size() == 1);
  CHECK_THAT(sentences[0], Catch::Contains("grouped_linear.TOKENS=64: legal for "));
}

TEST_CASE("what leaves no kernel is refused, and so is what there is not", "[cpu][trials]") {
  const Overrides none = forced({}, {"moe_decode"});
  const auto checked = none.check((plan_with(none)));
  REQUIRE(!checked);
  CHECK_THAT(checked.error().message, Catch::Contains("--disable moe_decode leaves no kernel"));
  const Overrides one = forced({}, {"sparse_mla_decode_sm90"});
  CHECK(one.check((plan_with(one))));
  const std::vector<std::string> unknown{"sparse_mla.WARPS=4"}, nothing;
  const auto refused = read_overrides(unknown, nothing);
  REQUIRE(!refused);
  CHECK_THAT(refused.error().message, Catch::Contains("no kernel family \"sparse_mla\"") &&
                                          Catch::Contains("sparse_mla_decode_simt"));
}
