#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/engine/engine.hpp"
#include "src/sampler/log_softmax.hpp"
#include "src/token.hpp"

namespace ingot {

/// What the model says after one given token.
struct ScoredPosition {
  std::vector<TokenLogprob> top;  ///< likeliest next tokens, most likely first
  std::optional<float> next;      ///< log-probability of the token that was given next
};

/// Whether the engine can score these tokens.
/// Error: invalid_argument if there are none, too many for the context, or one is outside the
/// vocabulary; the message says which.
[[nodiscard]] Result<void> check_scorable(const Engine& engine, std::span<const TokenId> tokens);

/// Feeds `tokens` to a fresh sequence in chunks whose logits stay below 64 MiB, and hands on the
/// logits after each token, [vocab_size], in order.
/// Throws EngineError(corrupt) where logits are NaN or +inf; the message names the position.
void for_each_logits(Engine& engine, std::span<const TokenId> tokens,
                     const std::function<void(std::size_t, std::span<const float>)>& on_logits);

/// The same, as log-probabilities with the `top` likeliest tokens.
void score_sequence(Engine& engine, std::span<const TokenId> tokens, int top,
                    const std::function<void(const ScoredPosition&)>& on_position);

}  // namespace ingot
