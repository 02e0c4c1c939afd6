#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "src/schedule/scheduler.hpp"
#include "src/text/control_tokens.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/small_tokenizer.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

constexpr int kRequests = 12;

/// Requests with every kind of sampling among them.
std::vector<SamplingParams> made_params(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<SamplingParams> all;
  for (int i = 0; i < kRequests; ++i) {
    SamplingParams p;
    p.seed = random();
    p.max_tokens = 1 + static_cast<std::int64_t>(random() % 30);
    p.temperature = random() % 3 == 0 ? 0 : 0.5 + 0.1 * static_cast<double>(random() % 10);
    if (random() % 2 == 0) p.top_k = 1 + static_cast<int>(random() % 50);
    if (random() % 2 == 0) p.top_p = 0.8;
    if (random() % 3 == 0) p.frequency_penalty = 0.7;
    if (random() % 3 == 0) p.logit_bias = {{static_cast<TokenId>(random() % 300), 3.0}};
    if (random() % 2 == 0) p.top_logprobs = static_cast<int>(random() % 4);
    if (random() % 3 == 0) p.thinking_budget = static_cast<std::int64_t>(random() % 5);
    p.ignore_eos = random() % 2 == 0;
    all.push_back(std::move(p));
  }
  return all;
}

std::vector<GenerationResult> answers(FakeEngine& engine, const std::vector<SamplingParams>& all) {
  std::vector<GenerationResult> results(all.size());
  Scheduler scheduler(engine, small_tokenizer(), {.max_batch = 5, .prefill_chunk = 4});
  for (std::size_t i = 0; i < all.size(); ++i) {
    ScheduledRequest request;
    request.generation.name = "test";
    request.generation.prompt = small_tokenizer().encode(
        "<｜User｜>" + std::string(i, 'a') + "<｜Assistant｜><think>", AddedTokens::recognise);
    request.generation.thinking = true;
    request.generation.sampling = all[i];
    request.on_finish = [&results, i](GenerationResult result) { results[i] = std::move(result); };
    value_or_throw(scheduler.submit(std::move(request)));
  }
  while (scheduler.step()) {
  }
  return results;
}

bool same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logit == b.logit && a.logprob == b.logprob;
}

void check_same(const GenerationResult& a, const GenerationResult& b) {
  CHECK(a.tokens == b.tokens);
  CHECK(a.content == b.content);
  CHECK(a.reasoning == b.reasoning);
  CHECK(a.finish_reason == b.finish_reason);
  CHECK(a.end_token == b.end_token);
  CHECK(a.thinking_tokens == b.thinking_tokens);
  CHECK(a.error.has_value() == b.error.has_value());
  if (a.error && b.error) CHECK(a.error->message == b.error->message);
  REQUIRE(a.logprobs.size() == b.logprobs.size());
  for (std::size_t i = 0; i < a.logprobs.size(); ++i) {
    CHECK(same(*a.logprobs[i].logprob, *b.logprobs[i].logprob));
    CHECK(std::ranges::equal(a.logprobs[i].top, b.logprobs[i].top, same));
  }
}

}  // namespace

TEST_CASE("answers are the same whether the engine chooses tokens or the scheduler does",
          "[cpu][schedule]") {
  const unsigned seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  const auto params = made_params(seed);
  FakeEngine gives_logits, chooses_all, chooses_some;
  chooses_all.set_samples([](const SamplingParams&) { return true; });
  chooses_some.set_samples(
      [](const SamplingParams& p) { return !p.has_penalties() && p.logit_bias.empty(); });
  const auto wanted = answers(gives_logits, params);
  const auto all = answers(chooses_all, params);
  const auto some = answers(chooses_some, params);
  CHECK(gives_logits.tokens_sampled() == 0);
  CHECK(chooses_some.tokens_sampled() > 0);
  CHECK(chooses_some.tokens_sampled() < chooses_all.tokens_sampled());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(i);
    check_same(all[i], wanted[i]);
    check_same(some[i], wanted[i]);
  }
}

TEST_CASE("a NaN that the engine meets while it chooses ends that answer alone",
          "[cpu][schedule]") {
  FakeEngine gives_logits, chooses;
  chooses.set_samples([](const SamplingParams&) { return true; });
  std::vector<SamplingParams> params(3);
  for (auto& p : params)
    p.max_tokens = 6;
  const auto sick = [](const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>((i * 7 + tokens.size()) % 50);
    const auto letters = std::ranges::count(tokens, tokens[1]);
    if (tokens.size() > 6 && letters == 2) logits[3] = std::numeric_limits<float>::quiet_NaN();
  };
  gives_logits.set_logits(sick);
  chooses.set_logits(sick);
  const auto wanted = answers(gives_logits, params);
  const auto got = answers(chooses, params);
  int failed = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    check_same(got[i], wanted[i]);
    failed += got[i].finish_reason == FinishReason::error ? 1 : 0;
  }
  CHECK(failed == 1);
}

TEST_CASE("an engine that fails in mid-step is heard of, and every sequence is given back",
          "[cpu][schedule]") {
  FakeEngine engine;
  engine.set_samples([](const SamplingParams&) { return true; });
  engine.set_before_step([](int step) {
    if (step == 5) throw EngineError(ErrorCode::cuda, "launching a kernel: the card is lost");
  });
  std::vector<SamplingParams> params(7);
  for (auto& p : params) {
    p.max_tokens = 20;
    p.ignore_eos = true;
  }
  CHECK_THROWS_WITH(answers(engine, params), Catch::Contains("the card is lost"));
  CHECK(engine.steps() == 5);
  CHECK(engine.live_sequences() == 0);
}
