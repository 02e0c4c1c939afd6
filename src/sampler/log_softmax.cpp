#include "src/sampler/log_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ingot {

double log_sum_exp(std::span<const float> logits) {
  float max = -std::numeric_limits<float>::infinity();
  for (const float logit : logits)
    max = std::max(max, logit);
  if (std::isinf(max)) return max;
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double log_sum, int n) {
  // A heap of the n best so far, worst on top: one pass, no copy of the vocabulary.
  const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  std::vector<TokenLogprob> best;
  const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(n, 0)), logits.size());
  if (wanted == 0) return best;
  best.reserve(wanted + 1);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const TokenLogprob entry{static_cast<TokenId>(i), logits[i], 0};
    if (best.size() == wanted && !better(entry, best.front())) continue;
    best.push_back(entry);
    std::push_heap(best.begin(), best.end(), better);
    if (best.size() > wanted) {
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (TokenLogprob& entry : best) {
    entry.logprob = static_cast<float>(static_cast<double>(entry.logit) - log_sum);
  }
  return best;
}

}  // namespace ingot
