#include "tuner/choice_table.hpp"

#include <catch2/catch.hpp>

#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::made_record;
using test::tuning_request;

TEST_CASE("choices are tables by card and families, a row a problem", "[cpu][tuner]") {
  TuningRecord many = made_record(tuning_request(64), 5);
  many.candidates[0].time_us = 25;
  many.candidates[5].time_us = 20;
  many.candidates[5].spread = 0.012;
  many.candidates[4].standing = Standing::tie;
  TuningRecord few = made_record(tuning_request(8), 2);
  few.complete = false;
  TuningRecord other = few;
  other.key.tp_size = 8;
  const std::string text = choice_tables(std::vector{many, few, other});
  CHECK_THAT(text, Catch::StartsWith("## " + many.key.device.name + ", TP 1, driver "));
  CHECK_THAT(text, Catch::Contains("\n### mma or simt\n\n"
                                   "| rows | family | TILE | µs | spread | gain | ties |\n"
                                   "|---|---|---|---|---|---|---|\n"
                                   "| 8 | mma | 32 |"));
  CHECK_THAT(text, Catch::Contains("| 64 | simt | 2 | 20.00 | 1.2 % | 1.25 | 1 |\n"));
  CHECK_THAT(text, Catch::Contains(" (cut short) |\n"));
  CHECK(text.find(", TP 8,") > text.find("| 64 |"));
  // With one row there is nothing in which problems differ.
  CHECK_THAT(text.substr(text.find(", TP 8,")), Catch::Contains("\n| family | TILE |"));
  CHECK(choice_tables({}).empty());
}
