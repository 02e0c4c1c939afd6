#pragma once

#include <cstddef>
#include <vector>

#include "src/engine/engine.hpp"

namespace ingot::test {

/// An answer, and the logits that each of its tokens was chosen from.
struct LoggedAnswer {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;
  bool operator==(const LoggedAnswer&) const = default;
};

using Prompts = std::vector<std::vector<TokenId>>;

/// Answers each prompt greedily; `together` of them run at once, and each that ends makes room for
/// the next. Prompts come in chunks of `chunk` tokens, beside running answers.
std::vector<LoggedAnswer> logged_answers(Engine& engine, const Prompts& prompts,
                                         std::size_t together, std::size_t chunk,
                                         std::size_t answer_tokens);

/// The same by the scheduler, which may let the engine choose the tokens; tokens alone.
struct ScheduledAnswers {
  std::vector<std::vector<TokenId>> tokens;
  std::int64_t preemptions = 0;
};
ScheduledAnswers scheduled_answers(Engine& engine, const Prompts& prompts, int max_batch, int chunk,
                                   std::size_t answer_tokens);

/// Prompts of made-up tokens: of `least` tokens, each by `more` longer than the one before.
Prompts made_up_prompts(int vocab_size, std::size_t count, std::size_t least, std::size_t more);

}  // namespace ingot::test
