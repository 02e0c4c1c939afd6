#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/token.hpp"

namespace ingot {

/// The most alternatives a request may ask to see at each position (as OpenAI's API).
inline constexpr int kMaxTopLogprobs = 20;

/// How the next token is chosen and when an answer ends. Defaults are the model card's
/// (temperature 1, top-p 1); every field has the range that validate() enforces.
struct SamplingParams {
  double temperature = 1.0;  ///< 0 … 2; 0 is greedy, lowest id on ties
  double top_p = 1.0;        ///< 0 … 1; the most likely token always stays
  int top_k = 0;             ///< 0 (off) or more
  double min_p = 0.0;        ///< 0 … 1, relative to the most likely token
  std::uint64_t seed = 0;

  double repetition_penalty = 1.0;  ///< above 0, up to 10; over prompt and answer
  double presence_penalty = 0.0;    ///< -2 … 2; over the answer
  double frequency_penalty = 0.0;   ///< -2 … 2; over the answer
  std::vector<std::pair<TokenId, double>> logit_bias;  ///< each -100 … 100

  /// Set: the log-probability of each token is reported, with this many alternatives (0 … 20).
  std::optional<int> top_logprobs;

  std::vector<std::string> stop;                ///< up to 64, each 1 … 1024 bytes of UTF-8
  std::vector<TokenId> stop_ids;                ///< beside the model's own end
  bool ignore_eos = false;                      ///< go on after the model's own end
  std::optional<std::int64_t> max_tokens;       ///< 1 or more; unset: until the context is full
  std::optional<std::int64_t> thinking_budget;  ///< 0 or more thinking tokens, then </think>

  bool has_penalties() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
};

/// Checks every field against its range and ids against the vocabulary.
/// Error: invalid_argument that names the field, the value and the range.
[[nodiscard]] Result<void> validate(const SamplingParams& params, int vocab_size);

}  // namespace ingot
