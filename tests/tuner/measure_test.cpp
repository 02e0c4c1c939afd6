#include "tuner/measure.hpp"

#include <catch2/catch.hpp>
#include <vector>

using namespace ingot;

TEST_CASE("a timing is the median of its replays, per node", "[cpu][tuner]") {
  const std::vector<double> samples{120, 100, 110, 500, 105};
  const Timing timing = summarize(samples, 10);
  CHECK(timing.median_us == Approx(11.0));
  CHECK(timing.min_us == Approx(10.0));
  CHECK(timing.nodes == 10);
  CHECK(timing.replays == 5);
  // 10th percentile 102, 90th 348.
  CHECK(timing.spread == Approx((348.0 - 102.0) / 110.0));
}

TEST_CASE("equal samples have no spread, one sample is its own median", "[cpu][tuner]") {
  CHECK(summarize(std::vector<double>(9, 42.0), 7).spread == 0);
  const std::vector<double> one{64};
  CHECK(summarize(one, 32).median_us == Approx(2.0));
}

TEST_CASE("the cold-read curve is followed between its points and past its ends", "[cpu][tuner]") {
  const std::vector<ColdRead> curve{{1e6, 1.5}, {2e6, 2.0}, {4e6, 2.5}};
  CHECK(cold_read_us(curve, 5e5) == Approx(1.5));
  CHECK(cold_read_us(curve, 1.5e6) == Approx(1.75));
  CHECK(cold_read_us(curve, 4e6) == Approx(2.5));
  CHECK(cold_read_us(curve, 8e6) == Approx(3.5));
}
