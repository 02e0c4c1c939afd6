// Tuning choices in prewarm and cache, as the built program runs them, with a stand-in for NVRTC
// and records as a card would have left them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/jit/bundle.hpp"
#include "src/cli/kernel_cache.hpp"
#include "src/plan/kernel_requests.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"
#include "tuner/tune.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::filesystem::path fake_nvrtc() {
  const char* given = std::getenv("INGOT_TEST_PROGRAM");
  const std::filesystem::path program(given != nullptr ? given : "build/ingot");
  return std::filesystem::absolute(program).parent_path() / "tests/fake_nvrtc";
}

std::filesystem::path config_json() {
  return std::filesystem::absolute(golden_dir()).parent_path().parent_path() /
         "configs/deepseek-v4-flash/config.json";
}

ProgramResult run(std::vector<std::string> arguments, const std::filesystem::path& cache_home) {
  ProgramOptions options;
  options.environment = {"TERM=dumb", "HOME=/nonexistent", "XDG_CACHE_HOME=" + cache_home.string(),
                         "INGOT_LIBRARY_PATH=" + fake_nvrtc().string()};
  return run_ingot(arguments, options);
}

std::vector<std::string> prewarm(std::vector<std::string> more = {},
                                 const std::string& batch = "1") {
  std::vector<std::string> arguments{"prewarm",   "--config", config_json().string(),
                                     "--jobs",    "2",        "--arch",
                                     "sm_90a",    "--batch",  batch,
                                     "--context", "4096"};  // the bucket of made_records
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

nlohmann::json json_of(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  const std::size_t begin = text.rfind('\n', end);
  return nlohmann::json::parse(text.substr(begin == std::string::npos ? 0 : begin + 1));
}

/// What a tuning of the uses for batch 1 on an H200 could have found: for each kernel that has a
/// choice the last of its candidates, twice as fast as the rest.
std::vector<TuningRecord> made_records(const std::string& device = "NVIDIA H200",
                                       int sm_count = 132,
                                       const PlanScope& scope = {.batch_buckets = {1}}) {
  KernelCacheOptions options;
  options.library_dirs = {fake_nvrtc()};
  const auto kernels = value_or_throw(open_kernel_store(options, 1));
  auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  limits.sm_count = sm_count;
  const auto uses =
      value_or_throw(kernel_uses(value_or_throw(read_model_config(config_json())), scope, limits));
  const TuningDevice card{
      .name = device, .arch = "sm_90a", .sm_count = sm_count, .driver_branch = "580"};
  std::vector<TuningRecord> records;
  for (const KernelUse& use : uses) {
    if (use.tuning.candidates.size() == 1) continue;
    TuningRecord record{.key = value_or_throw(
                            key_of(use.tuning, card, scope.tp_size, policy_text({}, {}), *kernels)),
                        .complete = true,
                        .noise = 0.005,
                        .candidates = {},
                        .rejections = use.tuning.rejections};
    for (const jit::Variant& variant : use.tuning.candidates) {
      record.candidates.push_back({.variant = variant,
                                   .standing = Standing::slower,
                                   .reason = {},
                                   .time_us = 20,
                                   .median_us = 20,
                                   .spread = 0,
                                   .samples_us = {20}});
    }
    record.candidates.back().standing = Standing::chosen;
    record.candidates.back().time_us = 10;
    records.push_back(std::move(record));
  }
  return records;
}

void publish(const std::vector<TuningRecord>& records, const std::filesystem::path& cache_home) {
  for (const TuningRecord& record : records)
    value_or_throw(TuningCache(cache_home / "ingot/tuning").publish(record));
}

}  // namespace

TEST_CASE("prewarm without a GPU compiles the defaults and the tuned choices of a bundle",
          "[cpu][cli][cache]") {
  const TempDir home;
  const TempDir elsewhere;
  const auto records = made_records();
  REQUIRE(records.size() > 3);
  publish(records, home.path());
  const auto plain = json_of(run(prewarm({"--dry-run", "--json"}), elsewhere.path()).out);
  CHECK(plain["tuning"].empty());

  const auto bundle = (home / "tuned.bundle").string();
  const auto exported = run({"cache", "export", bundle, "--json"}, home.path());
  CHECK(json_of(exported.out)["tuning"] == records.size());
  const auto imported = run({"cache", "import", bundle, "--json"}, elsewhere.path());
  CAPTURE(imported.err);
  CHECK(json_of(imported.out)["tuning_added"] == records.size());
  const auto again = json_of(run({"cache", "import", bundle, "--json"}, elsewhere.path()).out);
  CHECK(again["tuning_known"] == records.size());
  CHECK(again["tuning_added"] == 0);

  const auto dry = json_of(run(prewarm({"--dry-run", "--json"}), elsewhere.path()).out);
  CHECK(dry["kernels"] > plain["kernels"]);
  CHECK(dry["tuning"] ==
        nlohmann::json::parse(R"([{"device":"NVIDIA H200","arch":"sm_90a","kernels_with_choice":)" +
                              std::to_string(records.size()) + R"(,"tuned":)" +
                              std::to_string(records.size()) +
                              R"(,"open":[],"collectives":[],"untried":0}])"));
  const auto warm = run(prewarm(), elsewhere.path());
  CAPTURE(warm.err);
  CHECK(warm.status == 0);
  CHECK_THAT(warm.out, Catch::Contains("NVIDIA H200: tuning choices for"));
  for (const TuningRecord& record : records) {
    const jit::Variant& chosen = record.chosen().variant;
    CHECK_THAT(warm.out, Catch::Contains("compiled sm_90a " + jit::describe(chosen)));
  }
  CHECK_THAT(run(prewarm(), elsewhere.path()).out, Catch::StartsWith("nothing to compile: all "));
}

TEST_CASE("a card of another size has its own choices, and another TP size none",
          "[cpu][cli][cache]") {
  const TempDir home;
  const auto records = made_records("NVIDIA H100 PCIe", 114);
  publish(records, home.path());
  const auto dry = json_of(run(prewarm({"--dry-run", "--json"}), home.path()).out);
  REQUIRE(dry["tuning"].size() == 1);
  CHECK(dry["tuning"][0]["device"] == "NVIDIA H100 PCIe");
  CHECK(dry["tuning"][0]["tuned"] == records.size());
  // Records of one batch bucket are none of another's.
  const auto other = json_of(run(prewarm({"--dry-run", "--json"}, "64"), home.path()).out);
  CHECK(other["tuning"][0]["tuned"] < other["tuning"][0]["kernels_with_choice"]);
  CHECK(json_of(run(prewarm({"--dry-run", "--json", "--tp", "2"}), home.path()).out)["tuning"]
            .empty());
}

TEST_CASE("prewarm names the kernels that have no tuning choice, and why", "[cpu][cli][cache]") {
  const TempDir home;
  const PlanScope scope{.tp_size = 2, .batch_buckets = {1, 512}, .context_buckets = {4096, 32768}};
  // As with one card of two and too little time: what a prompt's wide steps have behind a longer
  // context is never tuned.
  auto records = made_records("NVIDIA H200", 132, scope);
  const auto stem = [](const TuningRecord& record) { return record.key.families.front().stem; };
  const auto is_collective = [&](const TuningRecord& record) {
    return stem(record) == "all_reduce" || stem(record) == "all_reduce_wide" ||
           stem(record) == "all_gather";
  };
  const auto collectives = std::count_if(records.begin(), records.end(), is_collective);
  REQUIRE(collectives == 7);  // three sums of both sizes, and one row of logits
  std::erase_if(records, is_collective);
  const auto left = std::find_if(records.begin(), records.end(),
                                 [&](const auto& record) { return stem(record) == "hc_post"; });
  REQUIRE(left != records.end());
  const std::string title = "hc_post " + describe(left->key.problem);
  records.erase(left);
  publish(records, home.path());

  auto arguments = prewarm({"--dry-run", "--tp", "2"}, "1,512");
  *std::find(arguments.begin(), arguments.end(), "4096") = "4096,32768";
  const std::string text = run(arguments, home.path()).out;
  CHECK_THAT(text, Catch::Contains("\n  not tuned yet: " + title + "\n"));
  CHECK_THAT(text, Catch::Contains("\n  tuned only on 2 such cards at once, one for each rank: "
                                   "all_gather 1, all_reduce 3, all_reduce_wide 3\n"));
  arguments.push_back("--json");
  const auto tuning = json_of(run(arguments, home.path()).out)["tuning"][0];
  CHECK(tuning["open"] == std::vector{title});
  CHECK(tuning["collectives"].size() == 7);
  CHECK(tuning["kernels_with_choice"].get<int>() ==
        tuning["tuned"].get<int>() + 1 + static_cast<int>(collectives));
  // The lists of keys, the scores, the top and the attention of HCA layers.
  CHECK(tuning["untried"] == 4);
  CHECK_THAT(text, Catch::Contains("besides, 4 kernels of prompts' steps of more than 256 tokens"));
  // What is there for those is not counted: they would not be tuned.
  CHECK(tuning["tuned"].get<std::size_t>() == records.size() - 4);
}

TEST_CASE("tuning choices are listed, verified, explained and collected", "[cpu][cli][cache]") {
  const TempDir home;
  const auto records = made_records();
  publish(records, home.path());
  const auto listed = run({"cache", "list"}, home.path());
  CHECK_THAT(
      listed.out,
      Catch::Contains("tuning expert_sum hidden=4096 tokens=1 on NVIDIA H200, TP 1: expert_sum ") &&
          Catch::Contains("10.00 us, 2.00 times as fast as the default; noise 0.5 %, 0 ties, "
                          "0 barred of") &&
          Catch::Contains("0 kernels, 0 barred, " + std::to_string(records.size()) +
                          " tuning choices, 0 damaged"));
  CHECK(run({"cache", "list", "--arch", "sm_80", "--json"}, home.path()).out.empty());
  const auto line = json_of(run({"cache", "list", "--json"}, home.path()).out);
  CHECK(line["kind"] == "tuning");
  CHECK(line["candidates"].back()["standing"] == "chosen");
  const auto table = run({"cache", "list", "--table"}, home.path());
  CHECK(table.status == 0);
  CHECK_THAT(table.out, Catch::StartsWith("## NVIDIA H200, TP 1, driver ") &&
                            Catch::Contains("\n### expert_sum\n\n| "));
  CHECK(run({"cache", "list", "--table", "--json"}, home.path()).status == 2);

  const auto explain = [&] {
    const auto result = run({"cache", "explain", "expert_sum", "--arch", "sm_90a"}, home.path());
    CAPTURE(result.err);
    CHECK(result.status == 0);
    return result.out;
  };
  CHECK(explain().find("not used here") == std::string::npos);
  // A record of other templates, of another NVRTC and measured in another way.
  const auto of_sum = std::find_if(records.begin(), records.end(), [](const auto& record) {
    return record.key.families.front().stem == "expert_sum";
  });
  REQUIRE(of_sum != records.end());
  TuningRecord stale = *of_sum;
  stale.key.families.front().source_digest = "0";
  stale.key.compiler.version = "12.9";
  stale.key.policy = "by eye";
  publish({stale}, home.path());
  CHECK_THAT(explain(), Catch::Contains("not used here: template of expert_sum: wanted ") &&
                            Catch::Contains("not used here: compiler (NVRTC version): wanted 13.0, "
                                            "the record has 12.9") &&
                            Catch::Contains("not used here: policy"));

  const auto file = TuningCache(home / "ingot/tuning").files().front().path;
  write_file(file, read_file(file).substr(0, 200));
  const auto verified = run({"cache", "verify"}, home.path());
  CHECK(verified.status == 1);
  CHECK_THAT(verified.out, Catch::Contains(file.string()) && Catch::Contains("1 damaged"));
  CHECK(json_of(run({"cache", "gc", "--json"}, home.path()).out)["damaged"] == 1);
  CHECK(run({"cache", "verify"}, home.path()).status == 0);
  CHECK(json_of(run({"cache", "gc", "--max-size", "0", "--json"}, home.path()).out)["kept"] == 0);
}

TEST_CASE("kernels that stamp the time are those that were chosen without stamps",
          "[cpu][cli][cache]") {
  const TempDir home;
  const auto records = made_records();
  publish(records, home.path());
  KernelCacheOptions options;
  options.cache_dirs = {home / "ingot"};
  options.library_dirs = {fake_nvrtc()};
  for (const bool traced : {false, true}) {
    CAPTURE(traced);
    options.traced = traced;
    const auto kernels = value_or_throw(open_kernel_store(options, 1));
    const auto store = open_tuning_store(options);
    for (const TuningRecord& record : records) {
      TuningRequest request{.problem = record.key.problem, .candidates = {}, .rejections = {}};
      for (const CandidateRecord& candidate : record.candidates)
        request.candidates.push_back(candidate.variant);
      request.rejections = record.rejections;
      const auto key =
          value_or_throw(key_of(request, record.key.device, 1, policy_text({}, {}), *kernels));
      CHECK((key == record.key) == !traced);
      const auto found = store->find(key);
      REQUIRE(found);
      CHECK(found->chosen().variant == record.chosen().variant);
    }
  }
  CHECK(TuningCache(home / "ingot/tuning").files().size() == records.size());
}

TEST_CASE("a bundle with a damaged tuning record imports nothing at all", "[cpu][cli][cache]") {
  const TempDir home;
  publish(made_records(), home.path());
  REQUIRE(run(prewarm(), home.path()).status == 0);
  const auto file = home / "b.bundle";
  REQUIRE(run({"cache", "export", file.string()}, home.path()).status == 0);
  auto bundle = value_or_throw(jit::read_bundle(file));
  REQUIRE(bundle.kernels.size() > 1);
  std::string& bytes = bundle.files.back().bytes;
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(file, jit::encode_bundle(bundle));
  const TempDir elsewhere;
  const auto result = run({"cache", "import", file.string()}, elsewhere.path());
  CHECK(result.status == 2);
  CHECK_THAT(result.err, Catch::Contains("its digest does not match"));
  CHECK_FALSE(std::filesystem::exists(elsewhere / "ingot/kernels"));
  CHECK_FALSE(std::filesystem::exists(elsewhere / "ingot/tuning"));
}

TEST_CASE("prewarm applies pins and disabled families, and refuses what there is not by name",
          "[cpu][cli][cache]") {
  const TempDir home;
  const auto pinned = run(prewarm({"--pin", "expert_sum.VECTOR=4"}), home.path());
  CAPTURE(pinned.err);
  CHECK(pinned.status == 0);
  CHECK_THAT(pinned.out, Catch::Contains("compiled sm_90a expert_sum THREADS=") &&
                             Catch::Contains(" VECTOR=4 "));
  const TempDir other;
  const auto without = run(prewarm({"--disable", "fp8_linear_sm90"}), other.path());
  CHECK(without.status == 0);
  CHECK(without.out.find("fp8_linear_sm90") == std::string::npos);
  CHECK_THAT(without.out, Catch::Contains("fp8_linear "));

  const auto refused = [&](std::vector<std::string> more, const std::string& word) {
    const auto result = run(prewarm(std::move(more)), home.path());
    CAPTURE(result.err);
    CHECK(result.status == 2);
    CHECK(result.err.find(word) != std::string::npos);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK(result.out.empty());
  };
  refused({"--pin", "expert_sum"}, "--pin must be FAMILY.PARAM=VALUE");
  refused({"--pin", "norm.VECTOR=8"}, "there is no kernel family \"norm\"; families: ");
  refused({"--pin", "expert_sum.WIDTH=8"}, "expert_sum has no parameter \"WIDTH\"");
  refused({"--pin", "expert_sum.VECTOR=3"}, "legal values of VECTOR here: ");
  refused({"--pin", "memory_read.THREADS=512"}, "no kernel of this plan is served by memory_read");
  refused({"--disable", "norm"}, "--disable norm: there is no kernel family");
  refused({"--disable", "expert_sum"}, "--disable expert_sum leaves no kernel for expert_sum ");
}
