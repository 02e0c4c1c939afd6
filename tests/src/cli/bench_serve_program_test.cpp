// `ingot bench serve` as the built program runs it, on the CPU.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot::test;

namespace {

ProgramResult serve(std::vector<std::string> more) {
  const auto model = std::filesystem::absolute(golden_dir()).parent_path().parent_path() /
                     "configs/models/ingot-tiny";
  std::vector<std::string> arguments{"bench", "serve", "--model", model.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_ingot(arguments);
}

}  // namespace

TEST_CASE("bench serve on the CPU prints a line for each concurrency, and JSON lines",
          "[cpu][program][bench]") {
  const TempDir dir;
  const ProgramResult ran =
      serve({"--device", "cpu", "--concurrency", "1,3", "--input", "2..6", "--output", "1..4",
             "--requests", "6", "--seed", "3", "--json", (dir / "lines.jsonl").string()});
  INFO(ran.err);
  REQUIRE(ran.status == 0);
  INFO(ran.out);
  CHECK_THAT(ran.out, Catch::Contains("the CPU, ") && Catch::Contains("ingot-tiny, 5 layers"));
  CHECK_THAT(ran.out, Catch::Contains("2..6") && Catch::Contains("1..4"));
  std::istringstream lines(read_file(dir / "lines.jsonl"));
  std::vector<int> concurrencies;
  for (std::string line; std::getline(lines, line);) {
    const auto one = nlohmann::json::parse(line);
    concurrencies.push_back(one["concurrency"]);
    CHECK(one["device"] == "CPU");
    CHECK(one["requests"] == 6);
    CHECK(one["seed"] == 3);
    CHECK(one["engine_idle_share"] < 1);
    CHECK(one["output_tokens_per_s"] > 0);
    CHECK(one["share_of_decode"] > 0);
    CHECK(one["first_token_p99_ms"] >= one["first_token_median_ms"]);
  }
  CHECK(concurrencies == std::vector<int>{1, 3});
}

TEST_CASE("bench serve refuses what it cannot measure", "[cpu][program][bench]") {
  const ProgramResult longer = serve({"--device", "cpu", "--input", "9M", "--output", "1"});
  CHECK(longer.status == 2);
  CHECK_THAT(longer.err, Catch::Contains("serving prompts of up to 9437184 tokens"));
  const ProgramResult backwards = serve({"--device", "cpu", "--input", "9..3"});
  CHECK(backwards.status == 2);
  CHECK_THAT(backwards.err, Catch::Contains("--input"));
  const ProgramResult seedless = serve({"--device", "cpu", "--seed", "x"});
  CHECK(seedless.status == 2);
  CHECK_THAT(seedless.err, Catch::Contains("--seed"));
  const ProgramResult made_up =
      run_ingot({"bench", "serve", "--synthetic", "--config", "none.json", "--device", "cpu"});
  CHECK(made_up.status == 2);
  CHECK_THAT(made_up.err, Catch::Contains("made on a GPU") && Catch::Contains("ingot synth"));
}
