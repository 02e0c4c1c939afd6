#include "tuner/look_up.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/standard_error.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tuner/tuning_fixture.hpp"

using namespace ingot;
using test::made_record;
using test::tile_variant;
using test::tuning_request;

namespace {

const TuningScope kScope{.device = test::tuning_device(), .tp_size = 1, .policy = "as made up"};

TuningRequest single() {
  TuningRequest request = tuning_request(9);
  request.candidates.resize(1);
  return request;
}

}  // namespace

TEST_CASE("a plan is looked up, and one line names the first key that is missing", "[cpu][tuner]") {
  const test::TempDir folder;
  const auto kernels = test::tuning_kernels();
  TuningStore records(std::vector{folder.path()});
  REQUIRE(records.save(made_record(tuning_request(1), 3)));
  const std::vector<TuningRequest> plan{tuning_request(1), single(), tuning_request(2),
                                        tuning_request(3)};
  const auto found = look_up(plan, kScope, *kernels, records, {});
  REQUIRE(found);
  CHECK(found->selections[0].candidate == 3);
  CHECK(found->selections[1].source == Selection::Source::no_choice);
  CHECK(found->selections[2].candidate == 0);
  CHECK(found->with_choice == 3);
  CHECK(found->tuned == 1);
  CHECK(found->missing_line() ==
        "2 of 3 kernels have no tuning choice and run with their defaults, the first for mma+simt "
        "rows=2 cols=4096 on NVIDIA H200, TP 1: `ingot prewarm` tunes them");
  CHECK(kernels->stats().compiled == 0);
  CHECK(look_up(std::span(plan).first(2), kScope, *kernels, records, {})->missing_line().empty());
}

TEST_CASE("a choice that is no candidate any more is warned of and not taken", "[cpu][tuner]") {
  const test::TempDir folder;
  const auto kernels = test::tuning_kernels();
  TuningStore records(std::vector{folder.path()});
  // As if two spaces had one digest, or somebody had written the file by hand.
  TuningRecord record = made_record(tuning_request(1), 3);
  record.candidates[3].variant = tile_variant("mma", 512);
  REQUIRE(records.save(record));
  const std::vector<TuningRequest> plan{tuning_request(1)};
  const std::string said = test::standard_error_of([&] {
    const auto found = look_up(plan, kScope, *kernels, records, {});
    CHECK(found->selections[0].candidate == 0);
    CHECK(found->tuned == 0);
  });
  CHECK_THAT(said, Catch::Contains("chose mma TILE=512 SINK=1, which is not legal here"));
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
}

TEST_CASE("tuner: another machine's choice serves the same device key and no other",
          "[cpu][tuner]") {
  const test::TempDir folder;
  const auto kernels = test::tuning_kernels();
  REQUIRE(TuningCache(folder.path()).publish(made_record(tuning_request(1), 3)));
  TuningStore here(std::vector{folder / "mine", folder.path()});
  const std::vector<TuningRequest> plan{tuning_request(1)};
  CHECK(look_up(plan, kScope, *kernels, here, {})->tuned == 1);
  for (const auto& [change, field] :
       {std::pair<void (*)(TuningScope&), const char*>{
            [](TuningScope& scope) { scope.device.name = "NVIDIA H100"; }, "device"},
        {[](TuningScope& scope) { scope.device.sm_count = 114; }, "multiprocessors"},
        {[](TuningScope& scope) { scope.device.driver_branch = "570"; }, "driver"},
        {[](TuningScope& scope) { scope.tp_size = 8; }, "TP size"}}) {
    TuningScope other = kScope;
    change(other);
    CAPTURE(field);
    CHECK(look_up(plan, other, *kernels, here, {})->tuned == 0);
    const auto key =
        value_or_throw(key_of(plan[0], other.device, other.tp_size, other.policy, *kernels));
    const auto lines = here.explain(key);
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[1], Catch::StartsWith(std::string("  ") + field + ": wanted "));
  }
}

TEST_CASE("a look-up follows the user's overrides, and refuses a plan without kernels",
          "[cpu][tuner]") {
  const test::TempDir folder;
  const auto kernels = test::tuning_kernels();
  TuningStore records(std::vector{folder.path()});
  const std::vector<TuningRequest> plan{tuning_request(1)};
  Overrides overrides{.pins = {{"simt", "TILE", 2}}, .disabled = {}};
  const auto pinned = look_up(plan, kScope, *kernels, records, overrides);
  CHECK(pinned->selections[0].candidate == 5);
  CHECK(pinned->selections[0].forced);
  overrides = {.pins = {}, .disabled = {"mma", "simt"}};
  CHECK(look_up(plan, kScope, *kernels, records, overrides).error().code ==
        ErrorCode::invalid_argument);
}
