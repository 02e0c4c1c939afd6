#include "src/trials/tuning_plan.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "src/cli/trial_command.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

ModelConfig flash() {
  return value_or_throw(read_model_config(test::golden_dir().parent_path().parent_path() /
                                          "configs/deepseek-v4-flash/config.json"));
}

std::vector<TuningRequest> plan_of(const std::vector<StepBucket>& buckets, int tp = 1) {
  return value_or_throw(trials::tuning_plan(flash(), tp, buckets,
                                            value_or_throw(cu::limits_of_arch("sm_90a"))))
      .requests;
}

/// Where the first request of a family stands in the plan.
std::size_t place_of(const std::vector<TuningRequest>& plan, const std::string& family) {
  return static_cast<std::size_t>(std::find_if(plan.begin(), plan.end(),
                                               [&](const TuningRequest& one) {
                                                 const auto families = one.families();
                                                 return std::find(families.begin(), families.end(),
                                                                  family) != families.end();
                                               }) -
                                  plan.begin());
}

}  // namespace

TEST_CASE("what takes most of a step is tuned first", "[cpu][trials]") {
  const auto plan = plan_of(trials::deployed_buckets({1}, {}, {4096}, true));
  REQUIRE(plan.size() > 25);
  CHECK(place_of(plan, "moe_decode") == 0);
  CHECK(place_of(plan, "fp8_linear") < place_of(plan, "sparse_mla_decode"));
  CHECK(place_of(plan, "grouped_linear") < place_of(plan, "rms_norm"));
  CHECK(place_of(plan, "hc_pre") < place_of(plan, "act_quant"));
  // Those without a choice come last.
  const auto first_single = std::find_if(plan.begin(), plan.end(), [](const TuningRequest& one) {
    return one.candidates.size() == 1;
  });
  CHECK(std::all_of(first_single, plan.end(),
                    [](const TuningRequest& one) { return one.candidates.size() == 1; }));
}

TEST_CASE("a problem that several buckets have is tuned once", "[cpu][trials]") {
  const auto one = plan_of(trials::deployed_buckets({4}, {}, {4096}, true));
  const auto two = plan_of(trials::deployed_buckets({4}, {}, {4096, 32768}, true));
  CHECK(two.size() > one.size());
  CHECK(two.size() < one.size() + 6);  // only what depends on the context
  std::vector<std::string> titles;
  for (const TuningRequest& request : two)
    titles.push_back(request.title());
  std::sort(titles.begin(), titles.end());
  CHECK(std::adjacent_find(titles.begin(), titles.end()) == titles.end());
}

TEST_CASE("buckets of one sequence come first, then whole chunks, then larger batches",
          "[cpu][trials]") {
  const auto buckets = trials::deployed_buckets({1, 8}, {1, 64, 256}, {4096, 32768}, true);
  REQUIRE(buckets.size() == 8);
  CHECK(buckets[0] == StepBucket{.sampled = true});
  CHECK(buckets[1].context == 32768);
  CHECK(buckets[2].sequence_rows == 256);
  CHECK(buckets[2].logit_rows == 1);
  CHECK(buckets[4].sequence_rows == 64);
  CHECK(buckets[6].sequences == 8);
  const auto wide = trials::deployed_buckets({1, 8}, {1, 64, 512, 2048}, {4096, 32768}, true);
  REQUIRE(wide.size() == 8);
  CHECK(wide[5].sequences == 8);
  CHECK(wide[6].rows == 2048);
  CHECK(wide[6].context == 4096);
  CHECK(wide[7].rows == 512);
}

TEST_CASE("the experts of a prompt's wide step count in each layer, and come first",
          "[cpu][trials]") {
  const auto plan = value_or_throw(
      trials::tuning_plan(flash(), 1, trials::deployed_buckets({}, {4096}, {4096}, true),
                          value_or_throw(cu::limits_of_arch("sm_90a"))));
  REQUIRE(plan.steps.size() == 1);
  CHECK(place_of(plan.requests, "moe_prefill_sm90") == 0);
  CHECK(place_of(plan.requests, "attention_slots") > place_of(plan.requests, "hc_pre_wide"));
  std::map<std::string, int> launches;
  for (std::size_t i = 0; i < plan.requests.size(); ++i)
    launches[plan.requests[i].families().front()] += plan.steps[0].launches[i];
  CHECK(launches["moe_prefill_sm90"] == 2 * flash().num_layers);
  CHECK(launches["expert_join"] == flash().num_layers);
  CHECK(launches["rope_kv_append"] == 2 * flash().num_layers);
  CHECK(launches["attention_slots"] == 1);
}

TEST_CASE("a trial worker's command line says all that it is told", "[cpu][trials]") {
  const TrialWorkerOptions options{.cache = {.cache_dirs = {"/a b", "/c=d"},
                                             .library_dirs = {"/lib"},
                                             .template_dir = "/templates",
                                             .frozen = false},
                                   .config_json = "/model/config.json",
                                   .tp_size = 4,
                                   .devices = {2, 0},
                                   .jobs = 3,
                                   .buckets = trials::deployed_buckets({1}, {64}, {4096}, true)};
  const auto command = trial_worker_command(options);
  REQUIRE(command[1] == kTrialWorkerCommand);
  const auto read = value_or_throw(parse_trial_worker({command.begin() + 2, command.end()}));
  CHECK(read.cache.cache_dirs == options.cache.cache_dirs);
  CHECK(read.cache.library_dirs == options.cache.library_dirs);
  CHECK(read.cache.template_dir == options.cache.template_dir);
  CHECK(read.config_json == options.config_json);
  CHECK(read.tp_size == 4);
  CHECK(read.devices == std::vector{2, 0});
  CHECK(read.jobs == 3);
  CHECK(read.buckets == options.buckets);
  for (const char* bad : {"bucket=1:2", "bucket=1:1:1:1:x", "tp=", "what=1", "bucket=1:1:1:1:1",
                          "bucket=1:1:1:1:1:1:1"})
    CHECK_FALSE(parse_trial_worker({"device=0", bad}));
  CHECK_FALSE(parse_trial_worker({"tp=1"}));  // no device
}

TEST_CASE("the sampler is tuned for every number of rows that a step chooses tokens for",
          "[cpu][trials]") {
  const auto rows_of = [](bool sampled) {
    std::vector<std::int64_t> rows;
    for (const TuningRequest& one :
         plan_of(trials::deployed_buckets({1, 16}, {64}, {4096, 32768}, sampled)))
      if (one.families() == std::vector<std::string>{"sample_tokens"})
        rows.push_back(one.problem.back().value);
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  CHECK(rows_of(true) == std::vector<std::int64_t>{1, 16});  // a chunk's last row is one
  CHECK(rows_of(false).empty());
}

TEST_CASE("with several ranks all is tuned but what they launch together", "[cpu][trials]") {
  const auto buckets = trials::deployed_buckets({1, 64}, {}, {4096}, true);
  for (const int tp : {1, 2, 8}) {
    CAPTURE(tp);
    const auto plan = value_or_throw(
        trials::tuning_plan(flash(), tp, buckets, value_or_throw(cu::limits_of_arch("sm_90a"))));
    // The embedding's, the attention's and the experts' sums, and the logits, for both batches.
    CHECK(plan.collectives.size() == (tp == 1 ? 0U : 8U));
    CHECK(std::none_of(plan.requests.begin(), plan.requests.end(), [](const auto& one) {
      return trials::is_collective(one.families().front());
    }));
    REQUIRE(plan.steps.size() == 2);
    CHECK(plan.steps[1].bucket == buckets[1]);
    for (const auto& step : plan.steps) {
      REQUIRE(step.launches.size() == plan.requests.size());
      int experts = 0;
      for (std::size_t i = 0; i < plan.requests.size(); ++i)
        if (plan.requests[i].candidates.front().family == "moe_decode") experts += step.launches[i];
      CHECK(experts == flash().num_layers);
    }
  }
}
