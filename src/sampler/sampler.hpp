#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/sampler/log_softmax.hpp"
#include "src/sampler/sampling_params.hpp"
#include "src/token.hpp"

namespace ingot {

/// What the penalties look at: the tokens of one sequence so far.
struct TokenHistory {
  std::unordered_set<TokenId> prompt;          ///< for the repetition penalty
  std::unordered_map<TokenId, int> generated;  ///< token -> how often
};

struct SampledToken {
  TokenId id = 0;
  /// Of the raw logits: before penalties, bias and temperature, as OpenAI reports it. Unset unless
  /// SamplingParams::top_logprobs is set.
  std::optional<TokenLogprob> logprob;
  std::vector<TokenLogprob> top;  ///< SamplingParams::top_logprobs of them
};

/// The random number of one token at one position: in (0, 1), a pure function of its arguments.
/// Philox4x32-10 with key (seed low, seed high) and counter (position low, position high, id / 4,
/// 0); word id % 4 of the block, w, gives (w + 0.5) / 2^32.
double sampling_uniform(std::uint64_t seed, std::int64_t position, TokenId id);

/// Why no token can be chosen.
/// @param bad  logits that are NaN or +inf; 0: all are -inf
Error no_token_error(std::size_t bad, std::size_t vocab_size);

/// Chooses tokens. Owns scratch memory only: the choice depends on the arguments alone, never on
/// earlier calls or on what else runs. One thread at a time.
///
/// Order of operations on the logits: repetition penalty (divides a positive logit, multiplies a
/// negative one), presence and frequency penalty, logit bias, temperature, top-k, top-p over what
/// top-k left, min-p. The token is then the winner of an exponential race: the kept token with the
/// greatest p / −ln(u), u = sampling_uniform(seed, position, id). That draws from p exactly, and,
/// unlike a search in a running sum, needs no order of summation: a device can repeat it.
class Sampler {
 public:
  /// @param logits    [vocab_size] of one sequence
  /// @param position  tokens that precede the one to be chosen, the prompt's included
  /// Errors: corrupt if a logit is NaN or +inf, or if no token is possible. The caller adds which
  /// sequence it was.
  [[nodiscard]] Result<SampledToken> sample(std::span<const float> logits,
                                            const SamplingParams& params,
                                            const TokenHistory& history, std::int64_t position);

  /// A token that is given, not chosen, reported in the same way.
  [[nodiscard]] Result<SampledToken> report(std::span<const float> logits,
                                            const SamplingParams& params, TokenId given) const;

 private:
  TokenId race(std::span<const float> logits, float max, const SamplingParams& params,
               std::int64_t position);
  void keep_top(std::span<const float> logits, float max, const SamplingParams& params);

  std::vector<float> adjusted_;
  std::vector<TokenId> kept_;
};

}  // namespace ingot
