#pragma once

#include <span>
#include <vector>

#include "src/token.hpp"

namespace ingot {

/// One entry of a distribution: the raw logit, and its natural log-probability.
struct TokenLogprob {
  TokenId id = 0;
  float logit = 0;
  float logprob = 0;
};

/// ln Σ exp(logit), in double, in id order. Logits must be free of NaN and +inf; -inf counts as
/// impossible. -inf when everything is impossible.
double log_sum_exp(std::span<const float> logits);

/// The `n` most likely entries, most likely first, lowest id first on ties.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double log_sum, int n);

}  // namespace ingot
