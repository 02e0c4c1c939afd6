#include "tuner/tuning_comparison.hpp"

#include <catch2/catch.hpp>

#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::made_record;
using test::tuning_request;

namespace {

/// Candidate `chosen` with `us`, all others 100 us.
TuningRecord record(std::size_t chosen, double us) {
  TuningRecord made = made_record(tuning_request(), chosen);
  for (CandidateRecord& one : made.candidates)
    one.time_us = 100;
  made.candidates[chosen].time_us = us;
  return made;
}

}  // namespace

TEST_CASE("a changed choice is told with its time, and whether it was a listed tie",
          "[cpu][tuner]") {
  CHECK_FALSE(compare_choices(record(2, 50), record(2, 40)));
  TuningRecord before = record(2, 50), after = record(3, 49);
  after.candidates[2].time_us = 50;
  auto change = compare_choices(before, after);
  REQUIRE(change);
  CHECK(change->title == after.key.title());
  CHECK(change->before == jit::describe(before.chosen().variant));
  CHECK(change->after == jit::describe(after.chosen().variant));
  CHECK_FALSE(change->tie);
  CHECK(change->ratio == Approx(0.98));
  SECTION("a tie of the one before") {
    before.candidates[3].standing = Standing::tie;
  }
  SECTION("a tie of the one after") {
    after.candidates[2].standing = Standing::tie;
  }
  if (before.candidates[3].standing == Standing::tie ||
      after.candidates[2].standing == Standing::tie)
    CHECK(compare_choices(before, after)->tie);
}

TEST_CASE("a step's times are those of its launches, with what was dropped by its samples",
          "[cpu][tuner]") {
  const TuningRecord same = record(2, 100);
  const TuningRecord before = record(2, 50);
  TuningRecord after = record(3, 49);
  after.candidates[2].time_us = 0;
  after.candidates[2].standing = Standing::dropped;
  after.candidates[2].samples_us = {71, 70};
  // 3 launches of 100 that stay, 2 of 70 that now take 49.
  const std::vector<LaunchedTunings> step{{&same, &same, 3}, {&before, &after, 2}};
  CHECK(step_ratio(step) == Approx((300 + 98) / (300 + 140.0)));
  CHECK(step_ratio({}) == 1);
}
