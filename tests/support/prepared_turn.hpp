#pragma once

#include <chrono>
#include <vector>

#include "src/executor/device_engine.hpp"
#include "tests/src/reference/synthetic_model.hpp"

namespace ingot::test {

/// A turn that passes from one context bucket to the next, token by token: of its prompt, and of
/// its answer.
inline constexpr std::int64_t kCrossingHeld = 4093;
inline constexpr StepForecast kCrossingTurn{
    .from = kCrossingHeld, .to = kCrossingHeld + 8, .chunk = 1};

/// Prepares all that can be; returns in how many pieces.
inline int prepare_all(Engine& engine) {
  int times = 0;
  while (engine.prepare(kCrossingTurn))
    ++times;
  return times;
}

/// Runs that turn behind entries of no meaning; returns the tokens that the engine chose.
/// @param ms  gets what each step took
inline std::vector<TokenId> run_turn(DeviceEngine& engine, std::vector<double>* ms = nullptr) {
  using Clock = std::chrono::steady_clock;
  SamplingParams likeliest;
  likeliest.temperature = 0;
  const TokenHistory history;
  const auto tokens = some_tokens(engine.config().vocab_size, 9);
  engine.fill_context();
  const SequenceId sequence = engine.create_filled(kCrossingHeld);
  std::vector<TokenId> chosen;
  std::size_t at = 0;
  const auto feed = [&](bool chooses) {
    SequenceStep step{sequence, std::span(tokens).subspan(at++, 1),
                      chooses ? LogitsOf::last : LogitsOf::none};
    if (chooses) step.sample = SampleRequest{&likeliest, &history, engine.length(sequence) + 1};
    const auto begin = Clock::now();
    const auto results = engine.step({&step, 1});
    if (ms != nullptr)
      ms->push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    if (chooses) chosen.push_back((**results[0].sampled).id);
  };
  // 4,096 tokens and less are the first bucket's.
  for (const bool chooses : {false, true, true, false, true, true})
    feed(chooses);
  engine.release(sequence);
  return chosen;
}

}  // namespace ingot::test
