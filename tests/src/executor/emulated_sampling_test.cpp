#include <catch2/catch.hpp>
#include <cmath>

#include "tests/src/executor/emulated_model.hpp"
#include "tests/support/emulator/emulated_card.hpp"

using namespace ingot;

namespace {

SamplingParams params(double temperature, double top_p, int top_k, std::optional<int> logprobs) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_p = top_p;
  p.top_k = top_k;
  p.top_logprobs = logprobs;
  p.seed = 77;
  return p;
}

}  // namespace

TEST_CASE("the device engine chooses the tokens that the sampler chooses from its logits",
          "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny");
  const auto engine = test::emulated_engine({card->driver()}, model.open(), 600'000, 12);
  const auto prompt = test::some_tokens(engine->config().vocab_size, 3);
  std::vector<SamplingParams> all{params(0, 1, 0, {}), params(1.3, 0.9, 40, 3),
                                  params(0.7, 1, 0, 0)};
  all.push_back(params(0.9, 1, 0, 1));
  all.back().presence_penalty = 0.5;
  all.back().repetition_penalty = 1.4;
  all.back().logit_bias = {{9, 4.0}, {9, -1.0}, {300, 6.5}};
  all.push_back(params(0, 1, 0, {}));
  all.back().logit_bias = {{77, 90.0}};
  all.push_back(params(0, 1, 0, {}));
  all.back().logit_bias.assign(513, {5, 0.01});  // its logits come back
  const TokenHistory history{.prompt = {prompt.begin(), prompt.end()},
                             .generated = {{9, 2}, {4, 1}}};
  // Two sequences each: of one the logits come back, of the other the token.
  std::vector<SequenceStep> batch;
  const auto first = engine->create_sequence();
  batch.push_back({first, std::span(prompt).first(2), LogitsOf::none});
  engine->step(batch);
  batch.clear();
  std::vector<SequenceId> sequences{first};
  while (sequences.size() < 2 * all.size())
    sequences.push_back(engine->fork(first));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    batch.push_back({sequences[i], std::span(prompt).last(1), LogitsOf::last});
    if (i % 2 == 1) batch.back().sample = SampleRequest{&all[i / 2], &history, 3};
  }
  const auto results = engine->step(batch);
  Sampler sampler;
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const StepLogits& logits = results[2 * i];
    const StepLogits& got = results[2 * i + 1];
    REQUIRE(logits.rows == 1);
    if (all[i].logit_bias.size() > 512) {
      CHECK_FALSE(got.sampled);
      CHECK(got.values == logits.values);
      continue;
    }
    REQUIRE(got.sampled);
    CHECK(got.rows == 0);
    CHECK(got.values.empty());
    REQUIRE(*got.sampled);
    const SampledToken& token = **got.sampled;
    const auto wanted = value_or_throw(sampler.sample(logits.row(0), all[i], history, 3));
    CHECK(token.id == wanted.id);
    REQUIRE(token.logprob.has_value() == wanted.logprob.has_value());
    REQUIRE(token.top.size() == wanted.top.size());
    if (!wanted.logprob) continue;
    CHECK(token.logprob->id == wanted.id);
    CHECK(token.logprob->logprob == Approx(wanted.logprob->logprob).epsilon(1e-6));
    for (std::size_t t = 0; t < wanted.top.size(); ++t) {
      CHECK(token.top[t].id == wanted.top[t].id);
      CHECK(token.top[t].logit == wanted.top[t].logit);
    }
  }
  CHECK(engine->stats().tokens_sampled == 5);
}

TEST_CASE("two ranks choose on rank 0 and restore what they saved", "[cpu][executor]") {
  const auto card = test::emulated_card(std::uint64_t{4} << 30, test::kEmulatedMultiprocessors);
  const test::SyntheticModel model("tiny-tp");
  const auto engine = test::emulated_engine({card->driver(), card->driver()}, model.open());
  const auto prompt = test::some_tokens(engine->config().vocab_size, 2);
  const auto first = engine->create_sequence();
  const SequenceStep begin{first, std::span(prompt).first(1), LogitsOf::none};
  engine->step({&begin, 1});
  const auto second = engine->fork(first);
  const SamplingParams all = params(1.1, 0.95, 60, 2);
  const TokenHistory history;
  const auto last = std::span(prompt).last(1);
  const SequenceStep batch[] = {{first, last, LogitsOf::last},
                                {second, last, LogitsOf::last, SampleRequest{&all, &history, 2}}};
  const auto results = engine->step(batch);
  REQUIRE(results[1].sampled);
  Sampler sampler;
  const auto wanted = value_or_throw(sampler.sample(results[0].row(0), all, history, 2));
  CHECK((**results[1].sampled).id == wanted.id);

  // Every rank holds the same state, whatever their number.
  const std::string bytes = value_or_throw(engine->snapshot_bytes(first));
  const auto restored = value_or_throw(engine->restore(bytes));
  CHECK(value_or_throw(engine->snapshot_bytes(restored)) == bytes);
  const SequenceStep next[] = {{first, last, LogitsOf::last}, {restored, last, LogitsOf::last}};
  const auto logits = engine->step(next);
  CHECK(logits[0].values == logits[1].values);
}
