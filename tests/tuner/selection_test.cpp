#include "tuner/selection.hpp"

#include <catch2/catch.hpp>

#include "tests/tuner/tuning_fixture.hpp"
#include "tuner/overrides.hpp"

using namespace ingot;
using test::made_record;
using test::tile_variant;
using test::tuning_request;

namespace {

const std::vector<jit::Variant> kFamilies{tile_variant("mma", 64), tile_variant("simt", 1),
                                          tile_variant("other", 1)};

Result<Overrides> parse(std::vector<std::string> pins, std::vector<std::string> disabled = {}) {
  return parse_overrides(pins, disabled, kFamilies);
}

std::string error_of(std::vector<std::string> pins, std::vector<std::string> disabled = {}) {
  const auto overrides = parse(std::move(pins), std::move(disabled));
  REQUIRE_FALSE(overrides);
  CHECK(overrides.error().code == ErrorCode::invalid_argument);
  return overrides.error().message;
}

using Indices = std::vector<std::size_t>;

Indices allowed(const Overrides& overrides) {
  return value_or_throw(overrides.allowed(tuning_request()));
}

}  // namespace

TEST_CASE("pins and disabled families are read by name, and refused by name", "[cpu][tuner]") {
  const auto overrides = parse({"mma.TILE=16", "simt.SINK=true"}, {"other", "other"});
  REQUIRE(overrides);
  CHECK(overrides->pins == std::vector<Pin>{{"mma", "TILE", 16}, {"simt", "SINK", 1}});
  CHECK(overrides->disabled == std::vector<std::string>{"other"});
  CHECK(parse({})->empty());

  CHECK(error_of({"mma"}) == "--pin must be FAMILY.PARAM=VALUE, not \"mma\"");
  CHECK(error_of({"mma=5.TILE"}) == "--pin must be FAMILY.PARAM=VALUE, not \"mma=5.TILE\"");
  CHECK(error_of({"wmma.TILE=16"}) ==
        "--pin wmma.TILE=16: there is no kernel family \"wmma\"; families: mma, simt, other");
  CHECK(error_of({"mma.TIL=16"}) ==
        "--pin mma.TIL=16: mma has no parameter \"TIL\"; its parameters: TILE, SINK");
  CHECK(error_of({"mma.TILE=16x"}) == "--pin mma.TILE=16x: the value must be a whole number");
  CHECK(error_of({"mma.TILE="}) == "--pin mma.TILE=: the value must be a whole number");
  CHECK(error_of({"mma.SINK=2"}) == "--pin mma.SINK=2: the value must be true or false");
  CHECK(error_of({"mma.TILE=16", "mma.TILE=32"}) ==
        "--pin mma.TILE=16 and --pin mma.TILE=32 contradict each other");
  CHECK(error_of({}, {"wmma"}) ==
        "--disable wmma: there is no kernel family \"wmma\"; families: mma, simt, other");
  CHECK(error_of({"mma.TILE=16"}, {"mma"}) ==
        "--pin mma.TILE=16 pins a family that --disable takes out");
}

TEST_CASE("a pin leaves its family's candidates with the value, a disabled family none",
          "[cpu][tuner]") {
  // mma TILE 64, 16, 32, 128; simt TILE 1, 2.
  CHECK(allowed({}) == Indices{0, 1, 2, 3, 4, 5});
  CHECK(allowed(*parse({"mma.TILE=32"})) == Indices{2});
  CHECK(allowed(*parse({"simt.TILE=2"})) == Indices{5});
  CHECK(allowed(*parse({"simt.SINK=1"})) == Indices{4, 5});
  CHECK(allowed(*parse({"mma.TILE=32", "simt.TILE=1"})) == Indices{2, 4});
  CHECK(allowed(*parse({}, {"mma"})) == Indices{4, 5});
  CHECK(allowed(*parse({"mma.TILE=999"})) == Indices{0, 1, 2, 3, 4, 5});  // no say here
  const auto nothing = parse({}, {"mma", "simt"})->allowed(tuning_request());
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().message ==
        "--disable mma, simt leaves no kernel for mma+simt rows=1 cols=4096");
}

TEST_CASE("a pin that fits nowhere in a plan is refused, one that fits somewhere is told of",
          "[cpu][tuner]") {
  std::vector<TuningRequest> plan{tuning_request(1), tuning_request(2)};
  plan[1].candidates.erase(plan[1].candidates.begin() + 2);  // no mma TILE 32
  CHECK(parse({"mma.TILE=16"})->check(plan)->empty());
  CHECK(*parse({"mma.TILE=32"})->check(plan) ==
        std::vector<std::string>{"--pin mma.TILE=32: legal for 1 of 2 kernels; mma+simt rows=2 "
                                 "cols=4096 and others run without it"});
  const auto illegal = parse({"mma.TILE=48"})->check(plan);
  REQUIRE_FALSE(illegal);
  CHECK(illegal.error().message ==
        "--pin mma.TILE=48: not legal for any kernel of this plan; legal values of TILE here: 16, "
        "32, 64, 128");
  CHECK(parse({"other.TILE=1"})->check(plan).error().message ==
        "--pin other.TILE=1: no kernel of this plan is served by other");
  CHECK_FALSE(parse({}, {"mma", "simt"})->check(plan));
}

TEST_CASE("a look-up takes the record's choice, and the default where there is none",
          "[cpu][tuner]") {
  const TuningRequest request = tuning_request();
  const Indices all = allowed({});
  auto record = made_record(request, 3);
  CHECK(select(request, all, record).candidate == 3);
  CHECK(select(request, all, record).source == Selection::Source::tuned);
  CHECK_FALSE(select(request, all, record).forced);
  record.complete = false;
  CHECK(select(request, all, record).source == Selection::Source::cut_short);
  CHECK(select(request, all, std::nullopt).candidate == 0);
  CHECK(select(request, all, std::nullopt).source == Selection::Source::fallback);
  TuningRequest single = request;
  single.candidates.resize(1);
  CHECK(select(single, Indices{0}, std::nullopt).source == Selection::Source::no_choice);
}

TEST_CASE("legality is checked again at look-up", "[cpu][tuner]") {
  TuningRequest request = tuning_request();
  const auto record = made_record(request, 3);
  request.candidates.erase(request.candidates.begin() + 3);
  const Selection selection = select(request, Indices{0, 1, 2, 3, 4}, record);
  CHECK(selection.candidate == 0);
  CHECK(selection.source == Selection::Source::fallback);
}

TEST_CASE("of what the user leaves, the fastest that the record knows and does not bar runs",
          "[cpu][tuner]") {
  const TuningRequest request = tuning_request();
  auto record = made_record(request, 3);  // the others take 20.25 us and more, in their order
  record.candidates[4].standing = Standing::barred;
  const Selection simt = select(request, allowed(*parse({}, {"mma"})), record);
  CHECK(simt.candidate == 5);
  CHECK(simt.forced);
  CHECK(simt.source == Selection::Source::tuned);
  CHECK(select(request, allowed(*parse({"mma.SINK=1"})), record).candidate == 3);
  record.candidates[5].time_us = 0;  // never measured
  const Selection unmeasured = select(request, allowed(*parse({}, {"mma"})), record);
  CHECK(unmeasured.candidate == 4);
  CHECK(unmeasured.source == Selection::Source::fallback);
}
