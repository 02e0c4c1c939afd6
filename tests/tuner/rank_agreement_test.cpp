#include "tuner/rank_agreement.hpp"

#include <catch2/catch.hpp>
#include <thread>

#include "tests/support/temp_dir.hpp"
#include "tests/tuner/fake_bench.hpp"
#include "tests/tuner/local_ranks.hpp"
#include "tests/tuner/tuning_fixture.hpp"
#include "tuner/tune.hpp"

using namespace ingot;

namespace {

CandidateTimes timed(double time_us, int dropped_after = 0) {
  return {.time_us = time_us, .dropped_after = dropped_after, .barred = false, .reason = {}};
}

RaceResult result_of(std::vector<CandidateTimes> candidates, double noise = 0.01) {
  return {.candidates = std::move(candidates), .noise = noise, .complete = true, .failure = {}};
}

}  // namespace

TEST_CASE("ranks are joined at the slowest, and one that bars or lacks a candidate does for all",
          "[cpu][tuner]") {
  CandidateTimes barred;
  barred.barred = true;
  barred.reason = "it hangs";
  RaceResult first = result_of({timed(10), timed(8), timed(9), timed(12, 1)}, 0.01);
  RaceResult second = result_of({timed(11), barred, CandidateTimes{}, timed(9)}, 0.02);
  second.complete = false;
  const RaceResult joined = join_results({first, second});
  CHECK(joined.candidates[0] == timed(11));
  CHECK(joined.candidates[1].barred);
  CHECK_FALSE(joined.candidates[1].time_us);
  CHECK(joined.candidates[1].reason == "rank 1: it hangs");
  CHECK_FALSE(joined.candidates[2].time_us);
  CHECK(joined.candidates[3] == timed(12, 1));
  CHECK(joined.noise == 0.02);
  CHECK_FALSE(joined.complete);
  CHECK(choose_of(joined)->chosen == 0);
  CHECK(join_results({first}) == first);
  // Where every candidate was dropped somewhere, those with a time on all ranks are left.
  CHECK(choose_of(result_of({timed(12, 1), timed(10, 2)}))->chosen == 1);
  CHECK_FALSE(choose_of(result_of({barred})));
}

TEST_CASE("results travel between ranks whole", "[cpu][tuner]") {
  CandidateTimes barred = timed(3, 2);
  barred.barred = true;
  barred.reason = "why";
  RaceResult result = result_of({timed(1.5), CandidateTimes{}, barred}, 0.03);
  result.failure = "no";
  result.complete = false;
  const std::string bytes = encode_result(result);
  CHECK(value_or_throw(decode_result(bytes)) == result);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    REQUIRE_FALSE(decode_result(bytes.substr(0, cut)));
}

TEST_CASE("tuner: noisy ranks make one choice, that of the slowest rank's times", "[cpu][tuner]") {
  constexpr int kRanks = 4;
  for (unsigned round = 0; round < 5; ++round) {
    const test::TempDir folder;
    const auto kernels = test::tuning_kernels();
    const TuningRequest request = test::tuning_request();
    test::LocalRanks group(kRanks);
    std::vector<TuneReport> reports(kRanks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto me = group.rank(rank);
        test::FakeClock clock;
        test::FakeBench bench(clock);
        bench.noise = 0.03;
        bench.reseed(100 * round + static_cast<unsigned>(rank));
        // mma 16 is the fastest, but not on rank 3; of the others simt 2 is.
        bench.time_us[jit::describe(test::tile_variant("mma", 16))] = rank == 3 ? 130 : 70;
        bench.time_us[jit::describe(test::tile_variant("simt", 2))] = 80;
        TuningStore records(rank == 0 ? std::vector{folder.path()}
                                      : std::vector{folder / "not written"});
        reports[static_cast<std::size_t>(rank)] =
            tune(std::span(&request, 1), *kernels, bench, records, *me,
                 {.device = test::tuning_device(), .policy = "p", .now_s = clock.reader()});
      });
    }
    threads.clear();
    for (const TuneReport& report : reports) {
      REQUIRE(report.count(TuneState::tuned) == 1);
      const TuningRecord& record = *report.requests[0].record;
      CHECK(record.chosen().variant == test::tile_variant("simt", 2));
      CHECK(record.chosen().time_us == reports[0].requests[0].record->chosen().time_us);
    }
    CHECK(TuningCache(folder.path()).files().size() == 1);
    CHECK_FALSE(std::filesystem::exists(folder / "not written"));
  }
}
