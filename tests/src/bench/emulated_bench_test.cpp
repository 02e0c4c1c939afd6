#include <catch2/catch.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/cli/bench_command.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/emulator/emulated_kernels.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using nlohmann::json;

namespace {

std::filesystem::path tiny_config() {
  return test::golden_dir() / "reference" / "tiny.json";
}

/// So little that the emulator is done with it in a moment.
RatePolicy small_rates() {
  return {.arena_bytes = 1 << 18,
          .read_bytes = {1 << 14, 1 << 16},
          .most_nodes = 2,
          .matrix_rounds = 1,
          .measure = {.warmup_replays = 0, .batch_replays = 1, .max_replays = 1}};
}

std::string bench(const BenchOptions& options) {
  const auto card = test::emulated_card(std::uint64_t{3} << 30, test::kEmulatedMultiprocessors);
  const test::TempDir dir;
  std::FILE* out = std::fopen((dir / "out").c_str(), "w");
  const int status =
      run_bench_on(options, card->driver(), test::emulated_source(), "13.0", small_rates(), out);
  std::fclose(out);
  CHECK(status == 0);
  return test::read_file(dir / "out");
}

}  // namespace

TEST_CASE("bench decode prints a table, JSON lines and a roofline", "[cpu][bench]") {
  const test::TempDir dir;
  BenchOptions options;
  options.config_json = tiny_config();
  options.layers = 3;
  options.batches = {1, 3};
  options.contexts = {64, 2 << 20};
  options.steps = 1;
  options.json = dir / "lines.jsonl";
  options.svg = dir / "roofline.svg";
  // Two million tokens are more than the made-up model's context: told of, not run.
  const std::string table = bench(options);
  INFO(table);
  using Catch::Contains;
  CHECK_THAT(table, Contains("host card, sm_90a, driver none, NVRTC 13.0: reads "));
  CHECK_THAT(table, Contains("3 layers, made-up weights, TP 1: ready in "));
  CHECK_THAT(table, Contains("us/step"));
  CHECK_THAT(table, Contains("batch 3, context 64: kinds of launches by themselves"));
  CHECK_THAT(table, Contains("default"));

  std::istringstream lines(test::read_file(options.json));
  int run = 0, refused = 0;
  for (std::string line; std::getline(lines, line);) {
    const json one = json::parse(line);
    CHECK(one["bench"] == "decode");
    CHECK(one["layers"] == 3);
    CHECK(one["card"]["cold_reads"].size() == 2);
    if (one.contains("refusal")) {
      ++refused;
      continue;
    }
    ++run;
    CHECK(one["context"] == 64);
    CHECK(one["step_us"] > 0);
    CHECK(one["from_graph"] == true);
    CHECK(one["tokens_per_s"].get<double>() ==
          Approx(one["batch"].get<double>() * 1e6 / one["step_us"].get<double>()));
    CHECK(one["share_of_floor"].get<double>() ==
          Approx(one["floor_us"].get<double>() / one["step_us"].get<double>()));
    int launches = 0;
    bool attention = false;
    for (const auto& part : one["parts"]) {
      launches += part["launches"].get<int>();
      attention |= part["kernel"].get<std::string>().starts_with("sparse_mla_decode");
      CHECK(part["us"] > 0);
    }
    CHECK(launches == one["launches"]);
    CHECK(attention);
  }
  CHECK(run == 2);
  CHECK(refused == 2);
  const std::string svg = test::read_file(options.svg);
  CHECK_THAT(svg, Contains("<svg") && Contains("1 x 64") && Contains("3 x 64"));
}

TEST_CASE("bench serve on a card prints what a scheduler reaches beside decode steps alone",
          "[cpu][bench]") {
  const test::TempDir dir;
  BenchOptions options;
  options.what = BenchOptions::What::serve;
  options.config_json = tiny_config();
  options.layers = 3;
  options.concurrency = {2};
  options.requests = 2;
  options.input = {.least = 1, .most = 1};
  options.output = {.least = 2, .most = 2};
  options.steps = 1;
  options.json = dir / "lines.jsonl";
  const std::string table = bench(options);
  INFO(table);
  CHECK_THAT(table, Catch::Contains("host card") && Catch::Contains("tokens/s"));
  const json line = json::parse(test::read_file(options.json));
  CHECK(line["bench"] == "serve");
  CHECK(line["synthetic"] == true);
  CHECK(line["generated_tokens"] == 4);
  CHECK(line["decode_alone_tokens_per_s"] > 0);
  CHECK(line["engine_idle_share"] > 0);
  CHECK(line["graph_steps"] > 0);
  CHECK(line["kernels_compiled"] == 0);
}

TEST_CASE("bench prefill prints how long a prompt takes", "[cpu][bench]") {
  const test::TempDir dir;
  BenchOptions options;
  options.what = BenchOptions::What::prefill;
  options.config_json = tiny_config();
  options.layers = 3;
  options.tokens = 6;
  options.chunk = 4;
  options.json = dir / "lines.jsonl";
  const std::string table = bench(options);
  CHECK_THAT(table, Catch::Contains("tokens/s"));
  const json line = json::parse(test::read_file(options.json));
  CHECK(line["bench"] == "prefill");
  CHECK(line["tokens"] == 6);
  CHECK(line["us"] > 0);
  CHECK(line["graph_steps"] == 2);  // of the second prompt, whose sizes have run before
}
