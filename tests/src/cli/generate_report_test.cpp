#include "src/cli/generate_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

void submit(Scheduler& scheduler, int prompt, int answer) {
  ScheduledRequest request;
  request.generation.name = "a request";
  request.generation.plain = true;
  request.generation.prompt.assign(static_cast<std::size_t>(prompt), 70);
  request.generation.sampling.max_tokens = answer;
  request.generation.sampling.ignore_eos = true;
  REQUIRE(scheduler.submit(std::move(request)));
}

}  // namespace

TEST_CASE("the progress of a batch shows the pages in use, and how full its steps were",
          "[cpu][cli]") {
  const test::TempDir dir;
  test::FakeEngine engine;
  engine.set_pages(40, 4);
  Scheduler scheduler(engine, test::small_tokenizer(), {.max_batch = 4});
  GenerateReport report(4, 0);
  REQUIRE(report.open_stats(dir / "stats.jsonl"));
  submit(scheduler, 6, 5);
  submit(scheduler, 3, 5);
  REQUIRE(scheduler.step());
  CHECK_THAT(report.progress({}, scheduler),
             Catch::EndsWith("2 of 4 running, 50 % in the mean; 3 of 40 KV pages"));
  REQUIRE(scheduler.step());
  CHECK_THAT(report.progress({}, scheduler), Catch::EndsWith("; 3 of 40 KV pages"));
  REQUIRE(scheduler.step());
  REQUIRE(scheduler.step());
  CHECK_THAT(report.progress({}, scheduler), Catch::EndsWith("; 5 of 40 KV pages"));
  while (scheduler.step()) {
  }
  report.write_stats({}, scheduler, true);
  const auto line = nlohmann::json::parse(test::read_file(dir / "stats.jsonl"));
  CHECK(line["kv_pages_used"] == 0);
  CHECK(line["kv_pages"] == 40);
  CHECK(line["occupancy"] == 0.5);
  CHECK(line["dropped_tokens"] == 0);
  CHECK(line["engine_idle_s"] >= 0);
}

TEST_CASE("an engine without pages is not said to have any", "[cpu][cli]") {
  test::FakeEngine engine;
  Scheduler scheduler(engine, test::small_tokenizer(), {.max_batch = 4});
  submit(scheduler, 6, 5);
  REQUIRE(scheduler.step());
  const GenerateReport report(4, 0);
  CHECK_THAT(report.progress({}, scheduler), !Catch::Contains("KV pages"));
}
