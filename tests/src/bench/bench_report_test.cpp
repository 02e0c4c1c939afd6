#include "src/bench/bench_report.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "src/plan/step_cost.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using nlohmann::json;

namespace {

/// 4 TB/s behind 2 us, 800 and 1,600 TFLOP/s.
CardRates round_rates() {
  return {.reads = {{.bytes = 1e6, .us = 2.25}, {.bytes = 100e6, .us = 27}},
          .f16_per_us = 800e6,
          .fp8_per_us = 1600e6,
          .empty_node_us = 0.7};
}

BenchSubject subject() {
  return {.device = "NVIDIA <H200> & co",
          .arch = "sm_90a",
          .driver_branch = "580",
          .compiler = "13.0",
          .version = "1.0",
          .model = "flash",
          .synthetic = true,
          .layers = 43,
          .rates = round_rates()};
}

DecodeResult result() {
  DecodeResult r{.cell = {.batch = 16, .context = 32768}, .refusal = {}, .timing = {}, .floor = {}};
  r.timing = {.step_us = 1000,
              .queue_us = 20,
              .launches = 7,
              .from_graph = true,
              .parts = {{.name = "head",
                         .kernel = "bf16_linear TOKENS=16",
                         .choice = "tuned",
                         .us = 300,
                         .launches = 1}},
              .path = {},
              .experts_read = 80.5};
  r.floor = {.bytes = 2e9, .operations = 4e11, .us = 500};
  r.engine_us = 1100;
  return r;
}

std::string printed(const std::function<void(std::FILE*)>& print) {
  const test::TempDir dir;
  std::FILE* out = std::fopen((dir / "out").c_str(), "w");
  print(out);
  std::fclose(out);
  return test::read_file(dir / "out");
}

}  // namespace

TEST_CASE("a decode table has a line for each cell, and says what ran", "[cpu][bench]") {
  DecodeResult refused{
      .cell = {.batch = 64, .context = 100}, .refusal = "too big", .timing = {}, .floor = {}};
  const std::string table = printed([&](std::FILE* out) {
    print_decode({result(), refused}, out);
  });
  CHECK_THAT(table, Catch::Contains("16      32K      1000   16000.0       500  50.0 %      2.00"));
  CHECK_THAT(table, Catch::Contains("64      100 not run: too big"));
  CHECK_THAT(table, Catch::Contains("tuned              bf16_linear TOKENS=16"));
}

TEST_CASE("a JSON line of a decode holds what the table shows", "[cpu][bench]") {
  const json line = json::parse(decode_json(subject(), result()));
  CHECK(line["tokens_per_s"] == 16000.0);
  CHECK(line["share_of_floor"] == 0.5);
  CHECK(line["parts"][0]["choice"] == "tuned");
  CHECK(line["card"]["f16_operations_per_us"] == 800e6);
  CHECK(line["card"]["read_bytes_per_us"] == Approx(4e6));
}

TEST_CASE("a roofline shows the ceilings and every point inside the frame", "[cpu][bench]") {
  const std::string svg = roofline_svg(
      subject(), {{.label = "16 x 32K", .operations_per_byte = 200, .operations_per_us = 4e8},
                  {.label = "slow", .operations_per_byte = 0.01, .operations_per_us = 1e3}});
  CHECK_THAT(svg, Catch::Contains("NVIDIA &lt;H200> &amp; co"));
  CHECK_THAT(svg, Catch::Contains("f16 800 TFLOP/s, 4.00 TB/s"));
  CHECK_THAT(svg, Catch::Contains("FP8 1600 TFLOP/s"));
  std::size_t at = 0;
  int points = 0;
  while ((at = svg.find("<circle cx=\"", at)) != std::string::npos) {
    at += 12;
    const double x = std::stod(svg.substr(at));
    const double y = std::stod(svg.substr(svg.find("cy=\"", at) + 4));
    CHECK(x >= 90);
    CHECK(x <= 730);
    CHECK(y >= 50);
    CHECK(y <= 450);
    ++points;
  }
  CHECK(points == 2);
}

TEST_CASE("a floor is reading or multiplying, whichever takes longer", "[cpu][bench]") {
  const ModelConfig config = value_or_throw(read_model_config(
      test::golden_dir().parent_path().parent_path() / "configs/deepseek-v4-flash/config.json"));
  const CardRates rates = round_rates();
  const StepFloor one = decode_floor(config, 1, {.batch = 1, .context = 8192}, 6, rates);
  CHECK(one.bytes / 1e9 == Approx(11.22 + 0.0132).epsilon(0.001));
  CHECK(one.us == Approx(2 + one.bytes / 4e6).epsilon(0.001));
  CHECK(one.operations / 1e9 == Approx(29.5).epsilon(0.005));
  // So many tokens that multiplying is the longer.
  const StepFloor many = decode_floor(config, 1, {.batch = 4096, .context = 8192}, 256, rates);
  CHECK(many.us > cold_read_us(rates.reads, many.bytes));
  CHECK(many.us > many.operations / rates.fp8_per_us);
  CHECK(many.us < many.operations / rates.f16_per_us);
  CHECK(context_tokens_of({{.batch = 3, .context = 8193}, {.batch = 1, .context = 8192}}) ==
        3 * 16384);
}
