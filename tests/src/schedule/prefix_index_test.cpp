#include "src/schedule/prefix_index.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "src/schedule/scheduler.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::vector<TokenId> made_tokens(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens)
    token = static_cast<TokenId>(40 + random() % 200);
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

SequenceId fed(FakeEngine& engine, std::span<const TokenId> tokens) {
  const SequenceId sequence = engine.create_sequence();
  const SequenceStep step{sequence, tokens, LogitsOf::none};
  engine.step({&step, 1});
  return sequence;
}

struct Answered {
  std::vector<std::vector<TokenId>> tokens;
  Scheduler::Totals totals;
};

Answered answer(FakeEngine& engine, const std::vector<std::vector<TokenId>>& prompts,
                const SchedulerOptions& options, const std::vector<int>& cancelled = {}) {
  Answered answered;
  answered.tokens.resize(prompts.size());
  Scheduler scheduler(engine, small_tokenizer(), options);
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ScheduledRequest request;
    request.generation.prompt = prompts[i];
    request.generation.sampling.max_tokens = 4;
    request.generation.sampling.seed = i;
    request.generation.sampling.ignore_eos = true;
    request.on_finish = [&answered, i](GenerationResult result) {
      answered.tokens[i] = std::move(result.tokens);
    };
    ids.push_back(value_or_throw(scheduler.submit(std::move(request))));
  }
  int steps = 0;
  while (scheduler.step()) {
    REQUIRE(++steps < 20000);
    for (const int which : cancelled) {
      if (steps == 2 + which) scheduler.cancel(ids[static_cast<std::size_t>(which)]);
    }
  }
  answered.totals = scheduler.totals();
  return answered;
}

}  // namespace

TEST_CASE("the longest kept beginning of a prompt is taken, in whole blocks", "[cpu][schedule]") {
  FakeEngine engine;
  {
    PrefixIndex index(engine, 3);
    const auto shared = made_tokens(300, 1);
    const auto a = joined(shared, made_tokens(50, 2));
    const auto b = joined(shared, made_tokens(70, 3));
    index.note(a);
    CHECK(index.lengths_to_keep(a, 0).empty());  // it is the only one
    index.note(b);
    CHECK(index.lengths_to_keep(a, 0) == std::vector<std::int64_t>{256});
    CHECK(index.lengths_to_keep(a, 256).empty());
    CHECK_FALSE(index.take(a));

    const auto sequence = fed(engine, std::span(a).first(256));
    index.keep(sequence, std::span(a).first(256));
    index.keep(sequence, std::span(a).first(256));
    CHECK(index.size() == 1);
    engine.release(sequence);
    CHECK(index.kept_length(b) == 256);
    const auto copy = index.take(b);
    REQUIRE(copy);
    CHECK(engine.tokens(*copy) == std::vector<TokenId>(b.begin(), b.begin() + 256));
    engine.release(*copy);
    // Something must be left to feed, and it must be the same tokens.
    CHECK(index.kept_length(std::span(a).first(256)) == 0);
    CHECK(index.kept_length(std::span(a).first(257)) == 256);
    CHECK(index.kept_length(made_tokens(400, 9)) == 0);
  }
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("a prompt that comes twice is kept up to its last whole block", "[cpu][schedule]") {
  FakeEngine engine;
  PrefixIndex index(engine, 2);
  const auto prompt = made_tokens(256, 1);
  index.note(prompt);
  index.note(prompt);
  CHECK(index.lengths_to_keep(prompt, 0) == std::vector<std::int64_t>{128});
}

TEST_CASE("the copy that was not used for longest makes room", "[cpu][schedule]") {
  FakeEngine engine;
  PrefixIndex index(engine, 2);
  std::vector<std::vector<TokenId>> prompts;
  for (unsigned i = 0; i < 3; ++i)
    prompts.push_back(made_tokens(129, i + 1));
  for (std::size_t i = 0; i < 3; ++i) {
    if (i == 2) engine.release(*index.take(prompts[0]));  // used since
    const auto sequence = fed(engine, std::span(prompts[i]).first(128));
    index.keep(sequence, std::span(prompts[i]).first(128));
    engine.release(sequence);
  }
  CHECK(index.kept_length(prompts[0]) == 128);
  CHECK(index.kept_length(prompts[1]) == 0);
  CHECK(index.kept_length(prompts[2]) == 128);
  CHECK(engine.live_sequences() == 2);
  CHECK(index.evict());
  CHECK(index.evict());
  CHECK_FALSE(index.evict());
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("where an engine has no place for a copy, prompts are fed whole", "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_max_sequences(1);
  PrefixIndex index(engine, 4);
  const auto prompt = made_tokens(129, 1);
  const auto sequence = fed(engine, std::span(prompt).first(128));
  index.keep(sequence, std::span(prompt).first(128));
  CHECK(index.size() == 0);
}

TEST_CASE("requests that begin alike are fed their common beginning once", "[cpu][schedule]") {
  const auto shared = made_tokens(1000, 1);
  std::vector<std::vector<TokenId>> prompts;
  for (unsigned i = 0; i < 20; ++i)
    prompts.push_back(joined(shared, made_tokens(20 + i, 100 + i)));
  FakeEngine engine, plain;
  const auto got = answer(engine, prompts, {.max_batch = 6, .kept_prefixes = 3});
  const auto wanted = answer(plain, prompts, {.max_batch = 6});
  CHECK(got.tokens == wanted.tokens);
  CHECK(got.totals.reused_tokens == 19 * 896);
  CHECK(got.totals.prompt_tokens == wanted.totals.prompt_tokens - 19 * 896);
  CHECK(engine.live_sequences() == 0);
}

TEST_CASE("answers do not depend on what is kept, in any mix of prompts", "[cpu][schedule]") {
  const unsigned seed = GENERATE(range(1U, 13U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  // A tree of beginnings: each prompt goes on from a part of one before.
  std::vector<std::vector<TokenId>> prompts;
  for (unsigned i = 0; i < 24; ++i) {
    std::vector<TokenId> prompt;
    if (!prompts.empty() && random() % 4 != 0) {
      const auto& other = prompts[random() % prompts.size()];
      prompt.assign(other.begin(),
                    other.begin() + static_cast<std::ptrdiff_t>(1 + random() % other.size()));
    }
    prompts.push_back(joined(std::move(prompt), made_tokens(1 + random() % 400, seed * 100 + i)));
  }
  SchedulerOptions options{.max_batch = 1 + static_cast<int>(random() % 7),
                           .prefill_chunk = 1 + static_cast<int>(random() % 300)};
  options.prefill_tokens_per_step = options.prefill_chunk * (1 + static_cast<int>(random() % 3));
  FakeEngine plain;
  const auto wanted = answer(plain, prompts, options);
  options.kept_prefixes = 1 + static_cast<int>(random() % 6);
  FakeEngine engine;
  // At times there is room for hardly more than what runs: kept copies make way.
  if (seed % 3 == 0)
    engine.set_max_sequences(static_cast<std::size_t>(options.max_batch) + random() % 2);
  const std::vector<int> cancelled = seed % 2 == 0 ? std::vector<int>{0, 3, 4} : std::vector<int>{};
  const auto got = answer(engine, prompts, options, cancelled);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (std::ranges::find(cancelled, static_cast<int>(i)) != cancelled.end()) continue;
    CAPTURE(i);
    CHECK(got.tokens[i] == wanted.tokens[i]);
  }
  CHECK(engine.live_sequences() == 0);
  if (cancelled.empty()) {
    CHECK(got.totals.prompt_tokens + got.totals.reused_tokens == wanted.totals.prompt_tokens);
  }
}

TEST_CASE("kept copies make room for a step that the engine has none for", "[cpu][schedule]") {
  const auto shared = made_tokens(300, 1);
  std::vector<std::vector<TokenId>> prompts;
  for (unsigned i = 0; i < 4; ++i)
    prompts.push_back(joined(shared, made_tokens(20, 100 + i)));
  FakeEngine engine;
  int refused = 0;
  engine.set_before_step([&](int) {
    if (engine.live_sequences() > 1 && refused < 3) {
      ++refused;
      throw EngineError(ErrorCode::exhausted, "no pages are left");
    }
  });
  const auto got = answer(engine, prompts, {.max_batch = 1, .kept_prefixes = 2});
  CHECK(refused > 0);
  FakeEngine plain;
  CHECK(got.tokens == answer(plain, prompts, {.max_batch = 1}).tokens);
}
