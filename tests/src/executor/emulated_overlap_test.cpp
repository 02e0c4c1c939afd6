#include <catch2/catch.hpp>

#include "tests/src/executor/emulated_model.hpp"
#include "tests/support/emulator/emulated_card.hpp"

using namespace ingot;

TEST_CASE(
    "a step in two halves brings what one in one piece does, whoever comes and goes meanwhile",
    "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  const auto engine = test::emulated_engine({card->driver()}, model.open(), 600'000, 5);
  REQUIRE(engine->can_overlap());
  const auto tokens = test::some_tokens(engine->config().vocab_size, 8);
  SamplingParams params;
  params.temperature = 0.9;
  params.presence_penalty = 0.5;
  params.top_logprobs = 2;
  params.seed = 7;
  const TokenHistory history{.prompt = {tokens.begin(), tokens.end()}, .generated = {{9, 2}}};

  const auto first = engine->create_sequence();
  {
    std::vector<TokenId> given(tokens.begin(), tokens.begin() + 4);
    const SequenceStep begin{first, given, LogitsOf::none};
    engine->launch({&begin, 1});
    CHECK(engine->length(first) == 4);
    const auto results = engine->finish();
    CHECK(results.size() == 1);
    CHECK(results[0].rows == 0);
  }
  const auto second = engine->fork(first), chooses = engine->fork(first);
  const auto next = std::span(tokens).subspan(4, 1);
  const SequenceStep in_one[] = {{first, next, LogitsOf::last}};
  const auto wanted = engine->step(in_one);

  const SequenceStep in_two[] = {
      {second, next, LogitsOf::last},
      {chooses, next, LogitsOf::last, SampleRequest{&params, &history, 5}}};
  engine->launch(in_two);
  CHECK_THROWS_WITH(engine->launch(in_one), Catch::Contains("the one before it has not ended"));
  const auto made = engine->create_sequence();
  const auto copy = engine->fork(first);
  engine->release(made);
  const auto got = engine->finish();
  REQUIRE(got.size() == 2);
  CHECK(got[0].values == wanted[0].values);
  REQUIRE(got[1].sampled);
  Sampler sampler;
  CHECK((*got[1].sampled)->id ==
        value_or_throw(sampler.sample(wanted[0].row(0), params, history, 5)).id);
  CHECK((*got[1].sampled)->top.size() == 2);
  CHECK_THROWS_WITH(engine->finish(), Catch::Contains("none is under way"));

  // The copy that was made meanwhile holds what its original held.
  const auto last = std::span(tokens).subspan(5, 1);
  const SequenceStep both[] = {{first, last, LogitsOf::last}, {copy, last, LogitsOf::last}};
  const auto after = engine->step(both);
  CHECK(after[0].values == after[1].values);

  // What is refused is not under way.
  const TokenId outside[] = {engine->config().vocab_size};
  const SequenceStep bad[] = {{first, outside, LogitsOf::last}};
  CHECK_THROWS_WITH(engine->launch(bad), Catch::Contains("outside the vocabulary"));
  CHECK_THROWS_AS(engine->finish(), EngineError);
}

TEST_CASE("an engine that goes while a step is under way gives all memory back",
          "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  const auto tokens = test::some_tokens(512, 1);
  const std::uint64_t free = card->free_bytes();
  {
    const auto engine = test::emulated_engine({card->driver()}, model.open());
    const SequenceStep step{engine->create_sequence(), tokens, LogitsOf::last};
    engine->launch({&step, 1});
  }
  CHECK(card->live_objects() == 0);
  CHECK(card->free_bytes() == free);
}
