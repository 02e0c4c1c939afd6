#include "src/engine/check_step.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <set>
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
                const std::function<std::int64_t(SequenceId)>& length) {
  std::set<SequenceId> seen;
  for (const SequenceStep& step : batch) {
    const std::int64_t held = length(step.sequence);
    if (!seen.insert(step.sequence).second) {
      refuse(
          fmt::format("running a step: sequence {} is in the batch twice", number(step.sequence)));
    }
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
