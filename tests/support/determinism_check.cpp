#include "tests/support/determinism_check.hpp"

#include <algorithm>
#include <utility>

#include "src/bench/serve_bench.hpp"
#include "src/schedule/scheduler.hpp"

namespace ingot::test {
namespace {

/// A prompt and its answer under way.
struct Underway {
  std::size_t prompt = 0;
  SequenceId sequence{};
  std::size_t fed = 0;
};

}  // namespace

std::vector<LoggedAnswer> logged_answers(Engine& engine, const Prompts& prompts,
                                         std::size_t together, std::size_t chunk,
                                         std::size_t answer_tokens) {
  std::vector<LoggedAnswer> answers(prompts.size());
  std::vector<Underway> underway;
  std::size_t next = 0;
  while (next < prompts.size() || !underway.empty()) {
    while (underway.size() < together && next < prompts.size())
      underway.push_back({.prompt = next++, .sequence = engine.create_sequence()});
    std::vector<SequenceStep> batch;
    for (const Underway& one : underway) {
      const auto& prompt = prompts[one.prompt];
      const std::size_t count = std::min(chunk, prompt.size() - one.fed);
      const bool last = one.fed + count == prompt.size();
      batch.push_back({.sequence = one.sequence,
                       .tokens = one.fed < prompt.size()
                                     ? std::span(prompt).subspan(one.fed, count)
                                     : std::span(answers[one.prompt].tokens).last(1),
                       .logits = last ? LogitsOf::last : LogitsOf::none});
    }
    const std::vector<StepLogits> results = engine.step(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Underway& one = underway[i];
      if (one.fed < prompts[one.prompt].size()) one.fed += batch[i].tokens.size();
      if (batch[i].logits == LogitsOf::none) continue;
      const auto row = results[i].row(0);
      LoggedAnswer& answer = answers[one.prompt];
      answer.tokens.push_back(
          static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
      answer.logits.emplace_back(row.begin(), row.end());
    }
    std::erase_if(underway, [&](const Underway& one) {
      if (answers[one.prompt].tokens.size() < answer_tokens) return false;
      engine.release(one.sequence);
      return true;
    });
  }
  return answers;
}

ScheduledAnswers scheduled_answers(Engine& engine, const Prompts& prompts, int max_batch, int chunk,
                                   std::size_t answer_tokens) {
  const Tokenizer tokenizer = made_up_tokenizer(engine.config().vocab_size);
  Scheduler scheduler(
      engine, tokenizer,
      {.max_batch = max_batch, .prefill_chunk = chunk, .prefill_tokens_per_step = 2 * chunk});
  ScheduledAnswers answers{.tokens = std::vector<std::vector<TokenId>>(prompts.size())};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ScheduledRequest request;
    request.generation.name = "a prompt";
    request.generation.plain = true;
    request.generation.prompt = prompts[i];
    request.generation.sampling.temperature = 0;
    request.generation.sampling.ignore_eos = true;
    request.generation.sampling.max_tokens = static_cast<std::int64_t>(answer_tokens);
    request.on_finish = [&answers, i](GenerationResult result) {
      answers.tokens[i] = std::move(result.tokens);
    };
    (void)value_or_throw(scheduler.submit(std::move(request)));
  }
  while (scheduler.step()) {
  }
  answers.preemptions = scheduler.totals().preemptions;
  return answers;
}

Prompts made_up_prompts(int vocab_size, std::size_t count, std::size_t least, std::size_t more) {
  std::uint64_t random = 7;
  Prompts prompts;
  for (std::size_t i = 0; i < count; ++i) {
    prompts.push_back(
        made_up_prompt(random, static_cast<std::int64_t>(least + i * more), vocab_size));
  }
  return prompts;
}

}  // namespace ingot::test
