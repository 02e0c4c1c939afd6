// Passes that are queued one behind the other, and steps in two halves.
#include <catch2/catch.hpp>

#include "tests/gpu/device_model.hpp"
#include "tests/src/reference/synthetic_model.hpp"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("passes that are queued without waiting bring what passes one by one bring",
          "[gpu][model][overlap]") {
  const SyntheticModel model("tiny");
  const auto engine = device_engine(
      model.open(), {.max_context = 4096, .max_sequences = 24, .deterministic = true});
  if (!engine) return;
  constexpr std::size_t kOthers = 9;
  const auto tokens = some_tokens(512, 4000);
  const auto all = std::span(tokens);
  SamplingParams params;
  params.temperature = 0.8;
  params.top_logprobs = 1;
  const TokenHistory history;
  // As they are the first time, recorded, and replayed.
  for (const std::size_t chunk : {1500, 1501, 1502, 1503}) {
    CAPTURE(chunk);
    std::vector<TokenId> chosen[2];
    std::vector<float> logits[2];
    for (int one_by_one = 0; one_by_one < 2; ++one_by_one) {
      std::vector<SequenceId> others;
      for (std::size_t i = 0; i < kOthers; ++i) {
        others.push_back(engine->create_sequence());
        run(*engine, others[i], all.subspan(7 * i, 1 + 19 * i), LogitsOf::none);
      }
      const SequenceId prompt = engine->create_sequence();
      const auto offer = [&](SequenceId sequence, std::span<const TokenId> fed) {
        const SampleRequest request{&params, &history, 100};
        return SequenceStep{sequence, fed, LogitsOf::last, request};
      };
      std::vector<SequenceStep> batch;
      for (std::size_t i = 0; i < kOthers; ++i)
        batch.push_back(offer(others[i], all.subspan(i, 1)));
      const auto take = [&](std::span<const StepLogits> results) {
        for (const StepLogits& one : results) {
          REQUIRE(one.sampled);
          chosen[one_by_one].push_back(value_or_throw(*one.sampled).id);
        }
      };
      if (one_by_one == 0) {
        batch.push_back(offer(prompt, all.first(chunk)));
        engine->launch(batch);
        const SequenceId made = engine->create_sequence();
        engine->release(made);
        take(engine->finish());
      } else {
        take(engine->step(batch));
        for (std::size_t at = 0; at < chunk; at += 200) {
          const auto part = all.subspan(at, std::min<std::size_t>(200, chunk - at));
          if (at + 200 < chunk) {
            run(*engine, prompt, part, LogitsOf::none);
          } else {
            const SequenceStep last[] = {offer(prompt, part)};
            take(engine->step(last));
          }
        }
      }
      logits[one_by_one] = run(*engine, prompt, all.subspan(chunk, 1)).values;
      engine->release(prompt);
      for (const SequenceId other : others)
        engine->release(other);
    }
    CHECK(chosen[0] == chosen[1]);
    CHECK(logits[0] == logits[1]);
  }
}
