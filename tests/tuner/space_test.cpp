#include "tuner/space.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

namespace {

struct Params {
  int TILE = 64;
  int STAGES = 2;
  bool SINK = true;
  bool operator==(const Params&) const = default;
};

Space<Params> small_space() {
  return Space<Params>(Params{})
      .axis(&Params::TILE, {32, 128})
      .axis(&Params::STAGES, {1, 2, 3})
      .keep_if("shared memory fits", [](const Params& c) { return c.TILE * c.STAGES <= 256; })
      .keep_if("a small tile has one stage",
               [](const Params& c) { return c.TILE > 32 || c.STAGES == 1; });
}

}  // namespace

TEST_CASE("candidates are the legal points, the default first", "[cpu][tuner]") {
  const auto candidates = small_space().candidates();
  CHECK(candidates == std::vector<Params>{{64, 2, true},
                                          {32, 1, true},
                                          {64, 1, true},
                                          {64, 3, true},
                                          {128, 1, true},
                                          {128, 2, true}});
}

TEST_CASE("rejections are counted under their rule's name", "[cpu][tuner]") {
  CHECK(small_space().rejections() ==
        std::map<std::string, int>{{"shared memory fits", 1}, {"a small tile has one stage", 2}});
  CHECK(small_space().rejection({128, 3, true}) == "shared memory fits");
  CHECK(small_space().rejection({64, 2, true}) == std::nullopt);
}

TEST_CASE("extremes reach the ends of every axis with the fewest other changes", "[cpu][tuner]") {
  // TILE = 32 needs one stage; TILE = 128 keeps the default's two; STAGES reach 1 and 3.
  CHECK(small_space().extremes() ==
        std::vector<Params>{
            {64, 2, true}, {32, 1, true}, {128, 2, true}, {64, 1, true}, {64, 3, true}});
}

TEST_CASE("an axis end that no legal candidate has gives way to the next value", "[cpu][tuner]") {
  const auto space =
      Space<Params>(Params{})
          .axis(&Params::STAGES, {1, 2, 3, 4})
          .keep_if("at most three stages", [](const Params& c) { return c.STAGES < 4; });
  CHECK(space.extremes() == std::vector<Params>{{64, 2, true}, {64, 1, true}, {64, 3, true}});
}

TEST_CASE("a space without axes is its default", "[cpu][tuner]") {
  CHECK(Space<Params>(Params{}).candidates() == std::vector<Params>{Params{}});
  CHECK(Space<Params>(Params{}).extremes() == std::vector<Params>{Params{}});
}

TEST_CASE("a default that a rule rejects is no candidate", "[cpu][tuner]") {
  const auto space = Space<Params>(Params{}).keep_if("never", [](const Params&) { return false; });
  CHECK(space.candidates().empty());
  CHECK(space.extremes().empty());
}
