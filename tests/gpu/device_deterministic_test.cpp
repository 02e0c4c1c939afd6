// Deterministic steps: an answer's tokens and logits, to the bit, however it is scheduled.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/gpu/device_model.hpp"
#include "tests/src/reference/synthetic_model.hpp"
#include "tests/support/determinism_check.hpp"

using namespace ingot;
using test::device_engine;
using test::logged_answers;
using test::made_up_prompts;
using test::scheduled_answers;

namespace {

constexpr std::size_t kAnswer = 12;

DeviceOptions options(std::int64_t context_tokens) {
  return {.max_context = 4096,
          .max_sequences = 64,
          .context_tokens = context_tokens,
          .jobs = 16,
          .deterministic = true};
}

/// Short prompts, and some that reach beyond the window and several compressed blocks.
test::Prompts prompts(int vocab_size) {
  test::Prompts all = made_up_prompts(vocab_size, 30, 1, 7);
  for (auto& more : made_up_prompts(vocab_size, 6, 300, 131))
    all.push_back(std::move(more));
  return all;
}

}  // namespace

TEST_CASE("with deterministic steps an answer's bits do not depend on what runs beside it",
          "[gpu][deterministic]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), options(1 << 17));
  if (!engine) return;
  const auto asked = prompts(engine->config().vocab_size);
  const auto alone = logged_answers(*engine, asked, 1, 512, kAnswer);
  for (const std::size_t together : {3U, 17U, 33U}) {
    CAPTURE(together);
    for (const std::size_t chunk : {512U, 100U, 7U}) {
      CAPTURE(chunk);
      const auto answers = logged_answers(*engine, asked, together, chunk, kAnswer);
      int differing = 0;
      for (std::size_t i = 0; i < asked.size(); ++i)
        differing += answers[i] == alone[i] ? 0 : 1;
      CHECK(differing == 0);
    }
  }
  CHECK(engine->stats().pages_in_use == 0);
}

TEST_CASE("with deterministic steps the scheduler's answers do not depend on its choices",
          "[gpu][deterministic]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), options(1 << 17));
  if (!engine) return;
  const auto asked = prompts(engine->config().vocab_size);
  const auto alone = logged_answers(*engine, asked, 1, 512, kAnswer);
  std::vector<std::vector<TokenId>> tokens;
  for (const auto& answer : alone)
    tokens.push_back(answer.tokens);
  for (const auto& [batch, chunk] : {std::pair{1, 64}, {5, 512}, {33, 32}}) {
    CAPTURE(batch, chunk);
    CHECK(scheduled_answers(*engine, asked, batch, chunk, kAnswer).tokens == tokens);
  }
  auto backwards = asked;
  std::ranges::reverse(backwards);
  auto answers = scheduled_answers(*engine, backwards, 9, 128, kAnswer).tokens;
  std::ranges::reverse(answers);
  CHECK(answers == tokens);
}

TEST_CASE("with deterministic steps an answer that gave its pages back goes on with the same bits",
          "[gpu][deterministic]") {
  const test::SyntheticModel model("tiny");
  const auto roomy = device_engine(model.open(), options(1 << 17));
  if (!roomy) return;
  const auto asked = made_up_prompts(roomy->config().vocab_size, 20, 500, 61);
  std::vector<std::vector<TokenId>> tokens;
  for (const auto& answer : logged_answers(*roomy, asked, 1, 512, kAnswer))
    tokens.push_back(answer.tokens);
  // 52 pages of 256 tokens: all of them together need twice as many.
  DeviceOptions few = options(4096);
  few.max_sequences = 20;
  const auto small = device_engine(model.open(), few);
  const auto preempted = scheduled_answers(*small, asked, 20, 100, kAnswer);
  CHECK(preempted.preemptions > 0);
  CHECK(preempted.tokens == tokens);
  CHECK(small->stats().pages_in_use == 0);
}

TEST_CASE("deterministic steps stay near the usual ones", "[gpu][deterministic]") {
  const test::SyntheticModel model("tiny");
  const auto engine = device_engine(model.open(), options(1 << 16));
  if (!engine) return;
  const auto asked = made_up_prompts(engine->config().vocab_size, 4, 40, 50);
  const auto ours = logged_answers(*engine, asked, 4, 64, 1);
  engine->set_deterministic(false);
  const auto usual = logged_answers(*engine, asked, 4, 64, 1);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    double difference = 0, norm = 0;
    for (std::size_t v = 0; v < usual[i].logits[0].size(); ++v) {
      const double a = ours[i].logits[0][v], b = usual[i].logits[0][v];
      difference += (a - b) * (a - b);
      norm += b * b;
    }
    // Random weights amplify a rounding that flips.
    CHECK(difference < 0.25 * norm);
  }
}
