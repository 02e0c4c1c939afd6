#include "tuner/family_gains.hpp"

#include <catch2/catch.hpp>

#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::made_record;
using test::tuning_request;

TEST_CASE("gains are geometric means by family, with the reasons of those that lost",
          "[cpu][tuner]") {
  TuningRecord twice = made_record(tuning_request(1), 2);
  twice.candidates[0].time_us = 20;  // the choice takes 10
  twice.candidates[1].standing = Standing::barred;
  twice.candidates[1].reason = "edge case \"empty row\": lse[2] is not written";
  twice.candidates[4].standing = Standing::tie;
  TuningRecord same = made_record(tuning_request(2), 0);
  same.candidates[3].standing = Standing::dropped;
  TuningRecord other = made_record(tuning_request(3), 2);
  other.key.families.pop_back();
  other.candidates[0].time_us = 80;
  const auto rows = family_gains(std::vector{twice, same, other, twice});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].families == "mma+simt");
  CHECK(rows[0].requests == 3);
  CHECK(rows[0].changed == 2);
  CHECK(rows[0].gain == Approx(1.5874));  // the cube root of 2 * 1 * 2
  CHECK(rows[0].best_gain == 2);
  CHECK(rows[0].spread == 0.01);
  CHECK(rows[0].candidates == 18);
  CHECK(rows[0].ties == 2);
  CHECK(rows[0].dropped == 1);
  CHECK(rows[0].barred == 2);
  CHECK(rows[0].reasons == std::map<std::string, int>{{"barred: edge case \"empty row\"", 2},
                                                      {"mma: shared memory fits", 6}});
  CHECK(rows[1].families == "mma");
  CHECK(rows[1].gain == Approx(8));
  const std::string table = gains_table(rows);
  CHECK_THAT(table, Catch::Contains("mma+simt ") && Catch::Contains(" 1.59   2.00    1.0%") &&
                        Catch::Contains("\n       6 mma: shared memory fits\n"));
}
