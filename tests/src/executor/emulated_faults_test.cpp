#include <catch2/catch.hpp>

#include "tests/src/executor/emulated_model.hpp"
#include "tests/support/emulator/emulated_card.hpp"

using namespace ingot;

namespace {

std::vector<StepLogits> run(Engine& engine, SequenceId sequence, std::span<const TokenId> tokens) {
  const SequenceStep step{sequence, tokens, LogitsOf::last};
  return engine.step({&step, 1});
}

}  // namespace

TEST_CASE("a launch that fails in mid-step is one error, and all memory is given back",
          "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  const auto tokens = test::some_tokens(512, 4);
  const auto all = std::span(tokens);
  const std::uint64_t free = card->free_bytes();
  {
    const auto engine = test::emulated_engine({card->driver()}, model.open());
    const auto sequence = engine->create_sequence();
    run(*engine, sequence, all.first(1));
    const int launches = card->launches();
    run(*engine, sequence, all.subspan(1, 1));
    const int of_a_step = card->launches() - launches;
    REQUIRE(of_a_step > 20);
    card->fail_launch(of_a_step / 2);
    for (int attempt = 0; attempt < 2; ++attempt) {  // the card stays lost
      try {
        run(*engine, sequence, all.subspan(2, 1));
        FAIL("no error");
      } catch (const EngineError& error) {
        CHECK(error.error().code == ErrorCode::cuda);
        CHECK_THAT(error.what(),
                   Catch::Contains(attempt == 0 ? "launching a kernel" : "cuMemcpyHtoDAsync"));
      }
      CHECK(engine->length(sequence) == 2);
    }
  }
  CHECK(card->live_objects() == 0);
  CHECK(card->free_bytes() == free);
}

TEST_CASE("a card with too little memory says how much is needed and keeps none",
          "[cpu][executor]") {
  const test::SyntheticModel model("tiny");
  // Weights and buffers fit, sequences do not.
  for (const std::uint64_t memory : {std::uint64_t{1} << 20, std::uint64_t{600} << 20}) {
    const auto card = test::emulated_card(memory, test::kEmulatedMultiprocessors);
    try {
      test::emulated_engine({card->driver()}, model.open());
      FAIL("no error");
    } catch (const EngineError& error) {
      CAPTURE(memory, error.what());
      // The card's word while the weights are loaded, the plan's afterwards.
      CHECK((error.error().code == ErrorCode::cuda || error.error().code == ErrorCode::exhausted));
      CHECK_THAT(error.what(),
                 Catch::Contains("GB") || Catch::Contains("MB") || Catch::Contains("bytes"));
    }
    CHECK(card->live_objects() == 0);
    CHECK(card->free_bytes() == memory);
  }
}
