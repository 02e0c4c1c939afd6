#include "src/schedule/teacher_forcing.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ingot {
namespace {

constexpr std::size_t kMaxLogitBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxChunk = 512;

/// Releases the sequence on every way out.
class ScopedSequence {
 public:
  explicit ScopedSequence(Engine& engine) : engine_(engine), id_(engine.create_sequence()) {}
  ScopedSequence(const ScopedSequence&) = delete;
  ScopedSequence& operator=(const ScopedSequence&) = delete;
  ~ScopedSequence() { engine_.release(id_); }

  SequenceId id() const { return id_; }

 private:
  Engine& engine_;
  SequenceId id_;
};

void check_finite(std::span<const float> logits, std::size_t position) {
  const auto bad = std::count_if(logits.begin(), logits.end(), [](float logit) {
    return !(logit <= std::numeric_limits<float>::max());
  });
  if (bad == 0) return;
  throw EngineError(
      ErrorCode::corrupt,
      fmt::format("scoring position {}: {} of {} logits are NaN or infinite; check the "
                  "checkpoint with `ingot inspect --hash`",
                  position, bad, logits.size()));
}

}  // namespace

Result<void> check_scorable(const Engine& engine, std::span<const TokenId> tokens) {
  return check_scorable(engine.config().vocab_size, engine.max_context(), tokens);
}

Result<void> check_scorable(int vocab_size, std::int64_t max_context,
                            std::span<const TokenId> tokens) {
  if (tokens.empty()) {
    return fail(ErrorCode::invalid_argument,
                "there is nothing to score: the input has no tokens; give some text");
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("token {} at position {} is outside the vocabulary: ids go from 0 to {}",
                    tokens[i], i, vocab_size - 1));
  }
  if (static_cast<std::int64_t>(tokens.size()) > max_context) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("the input has {} tokens, but the context holds {}: shorten it, or raise "
                    "--context",
                    tokens.size(), max_context));
  }
  return {};
}

void for_each_logits(Engine& engine, std::span<const TokenId> tokens,
                     const std::function<void(std::size_t, std::span<const float>)>& on_logits) {
  const ScopedSequence sequence(engine);
  const std::size_t row_bytes =
      sizeof(float) * static_cast<std::size_t>(engine.config().vocab_size);
  const std::size_t chunk = std::clamp<std::size_t>(kMaxLogitBytes / row_bytes, 1, kMaxChunk);
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    const SequenceStep step{sequence.id(), part, LogitsOf::all};
    const StepLogits logits = engine.step({&step, 1}).at(0);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto row = logits.row(static_cast<int>(i));
      check_finite(row, begin + i);
      on_logits(begin + i, row);
    }
  }
}

void score_sequence(Engine& engine, std::span<const TokenId> tokens, int top,
                    const std::function<void(const ScoredPosition&)>& on_position) {
  for_each_logits(engine, tokens, [&](std::size_t at, std::span<const float> row) {
    const double log_sum = log_sum_exp(row);
    ScoredPosition position{top_logprobs(row, log_sum, top), std::nullopt};
    if (at + 1 < tokens.size()) {
      position.next = static_cast<float>(row[static_cast<std::size_t>(tokens[at + 1])] - log_sum);
    }
    on_position(position);
  });
}

}  // namespace ingot
