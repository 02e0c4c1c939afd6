#include "src/engine/check_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "runtime/base/error.hpp"

namespace ingot {
namespace {

std::uint64_t number(SequenceId sequence) {
  return static_cast<std::uint64_t>(sequence);
}

[[noreturn]] void refuse(std::string message) {
  throw EngineError(ErrorCode::invalid_argument, std::move(message));
}

void refuse_repeats(std::span<const SequenceStep> batch, std::vector<SequenceId>& ids) {
  const auto ascends = [](const SequenceStep& a, const SequenceStep& b) {
    return a.sequence < b.sequence;
  };
  const auto not_below = [&](const SequenceStep& a, const SequenceStep& b) {
    return !ascends(a, b);
  };
  // Mostly they come in the order in which they were made.
  if (std::adjacent_find(batch.begin(), batch.end(), not_below) == batch.end()) return;
  ids.clear();
  for (const SequenceStep& step : batch)
    ids.push_back(step.sequence);
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return;
  refuse(fmt::format("running a step: sequence {} is in the batch twice", number(*twice)));
}

}  // namespace

void check_tokens(SequenceId sequence, std::span<const TokenId> tokens, int vocab_size) {
  if (tokens.empty()) refuse(fmt::format("running sequence {}: no tokens", number(sequence)));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      refuse(
          fmt::format("running sequence {}: token {} at place {} is outside the vocabulary of {}",
                      number(sequence), tokens[i], i, vocab_size));
    }
  }
}

void check_step(std::span<const SequenceStep> batch, int vocab_size, std::int64_t max_context,
                FunctionRef<std::int64_t(SequenceId)> length, std::vector<SequenceId>& ids) {
  refuse_repeats(batch, ids);
  for (const SequenceStep& step : batch) {
    const std::int64_t held = length(step.sequence);
    check_tokens(step.sequence, step.tokens, vocab_size);
    if (step.sample && step.logits != LogitsOf::last) {
      refuse(
          fmt::format("running sequence {}: a token can be chosen behind the last one only, with "
                      "LogitsOf::last",
                      number(step.sequence)));
    }
    if (static_cast<std::int64_t>(step.tokens.size()) > max_context - held) {
      refuse(
          fmt::format("running sequence {}: {} tokens on top of {} are more than the context of "
                      "{}; shorten the prompt or start with a longer context",
                      number(step.sequence), step.tokens.size(), held, max_context));
    }
  }
}

}  // namespace ingot
