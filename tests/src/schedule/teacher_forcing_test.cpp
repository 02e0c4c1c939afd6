#include "src/schedule/teacher_forcing.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/support/fake_engine.hpp"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("scoring reports each position's likeliest tokens and the next one's log-probability",
          "[cpu][schedule]") {
  FakeEngine engine(4);
  // After token t the logits are ln of 1, 2, 3, 4, rotated by t.
  engine.set_logits([](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    for (std::size_t i = 0; i < 4; ++i) {
      logits[(i + static_cast<std::size_t>(tokens.back())) % 4] =
          std::log(static_cast<float>(i + 1));
    }
  });
  const std::vector<TokenId> tokens{0, 1, 3};
  std::vector<ScoredPosition> positions;
  score_sequence(engine, tokens, 2, [&](const ScoredPosition& p) { positions.push_back(p); });
  REQUIRE(positions.size() == 3);
  CHECK(positions[0].top[0].id == 3);
  CHECK(positions[0].top[0].logprob == Approx(std::log(0.4)));
  CHECK(positions[0].top[1].id == 2);
  CHECK(*positions[0].next == Approx(std::log(0.2)));  // token 1 of 1, 2, 3, 4
  CHECK(*positions[1].next == Approx(std::log(0.3)));  // token 3, rotated by 1
  CHECK(!positions[2].next);
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("scoring runs in chunks and feeds each token once", "[cpu][schedule]") {
  FakeEngine engine(300);
  const std::vector<TokenId> tokens(1500, 7);
  int positions = 0;
  score_sequence(engine, tokens, 0, [&](const ScoredPosition&) { ++positions; });
  CHECK(positions == 1500);
  CHECK(engine.tokens_fed() == 1500);
  CHECK(engine.steps() == 3);
}

TEST_CASE("tokens that cannot be scored are refused by place", "[cpu][schedule]") {
  FakeEngine engine(10);
  engine.set_max_context(3);
  CHECK(check_scorable(engine, std::vector<TokenId>{1, 2, 3}));
  CHECK(!check_scorable(engine, std::vector<TokenId>{}));
  CHECK(!check_scorable(engine, std::vector<TokenId>{1, 2, 3, 4}));
  const auto outside = check_scorable(engine, std::vector<TokenId>{1, 10});
  REQUIRE(!outside);
  CHECK(outside.error().message.find("token 10 at position 1") != std::string::npos);
}

TEST_CASE("NaN logits end scoring with the position", "[cpu][schedule]") {
  FakeEngine engine(10);
  engine.set_logits([](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    if (tokens.size() == 3) logits[5] = std::numeric_limits<float>::quiet_NaN();
  });
  CHECK_THROWS_WITH(score_sequence(engine, std::vector<TokenId>{1, 2, 3, 4}, 1, [](const auto&) {}),
                    Catch::Contains("position 2"));
  CHECK(engine.live_sequences() == 0);
}
