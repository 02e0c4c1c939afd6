#include "src/sampler/sampler.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/sampler/philox.hpp"

namespace ingot {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

std::array<std::uint32_t, 4> random_block(std::uint64_t seed, std::int64_t position, TokenId id) {
  const auto at = static_cast<std::uint64_t>(position);
  return philox({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
                 static_cast<std::uint32_t>(id) / 4, 0},
                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

double to_uniform(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

/// The greatest logit and its lowest id.
Result<std::pair<TokenId, float>> check_and_argmax(std::span<const float> logits) {
  std::size_t best = 0;
  std::size_t bad = 0;
  float max = kImpossible;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    // One comparison for both: NaN and +inf fail it.
    if (!(logit <= std::numeric_limits<float>::max())) {
      ++bad;
    } else if (logit > max) {
      max = logit;
      best = i;
    }
  }
  if (bad > 0 || max == kImpossible) return Unexpected(no_token_error(bad, logits.size()));
  return std::pair{static_cast<TokenId>(best), max};
}

void apply_penalties(std::vector<float>& logits, const SamplingParams& params,
                     const TokenHistory& history) {
  const auto at = [&](TokenId id) -> float& { return logits[static_cast<std::size_t>(id)]; };
  const auto repeat = [&](TokenId id) {
    const double logit = at(id);
    at(id) = static_cast<float>(logit > 0 ? logit / params.repetition_penalty
                                          : logit * params.repetition_penalty);
  };
  if (params.repetition_penalty != 1.0) {
    for (const TokenId id : history.prompt)
      repeat(id);
    for (const auto& [id, count] : history.generated) {
      if (!history.prompt.contains(id)) repeat(id);
    }
  }
  for (const auto& [id, count] : history.generated) {
    at(id) =
        static_cast<float>(at(id) - params.presence_penalty - params.frequency_penalty * count);
  }
}

}  // namespace

Error no_token_error(std::size_t bad, std::size_t vocab_size) {
  if (bad == 0) {
    return {ErrorCode::corrupt,
            fmt::format("all {} logits are -inf: no token can be chosen", vocab_size)};
  }
  return {ErrorCode::corrupt,
          fmt::format("{} of {} logits are NaN or infinite: no token can be chosen; check the "
                      "checkpoint with `ingot inspect --hash`",
                      bad, vocab_size)};
}

double sampling_uniform(std::uint64_t seed, std::int64_t position, TokenId id) {
  return to_uniform(random_block(seed, position, id)[static_cast<std::size_t>(id) % 4]);
}

Result<SampledToken> Sampler::report(std::span<const float> logits, const SamplingParams& params,
                                     TokenId given) const {
  SampledToken token{given, std::nullopt, {}};
  if (!params.top_logprobs) return token;
  if (auto usable = check_and_argmax(logits); !usable) return Unexpected(usable.error());
  const double log_sum = log_sum_exp(logits);
  const float logit = logits[static_cast<std::size_t>(given)];
  token.logprob = TokenLogprob{given, logit, static_cast<float>(logit - log_sum)};
  token.top = top_logprobs(logits, log_sum, *params.top_logprobs);
  return token;
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                                     const TokenHistory& history, std::int64_t position) {
  auto best = check_and_argmax(logits);
  if (!best) return Unexpected(best.error());

  std::span<const float> chosen_from = logits;
  if (params.has_penalties() || !params.logit_bias.empty()) {
    adjusted_.assign(logits.begin(), logits.end());
    if (params.has_penalties()) apply_penalties(adjusted_, params, history);
    for (const auto& [id, bias] : params.logit_bias) {
      float& logit = adjusted_[static_cast<std::size_t>(id)];
      logit = static_cast<float>(logit + bias);
    }
    chosen_from = adjusted_;
    best = check_and_argmax(chosen_from);
    if (!best) return Unexpected(best.error());
  }
  const auto [greedy, max] = *best;
  // Of a temperature below the normal numbers the reciprocal may be infinite.
  const bool likeliest = params.temperature < std::numeric_limits<double>::min();
  const TokenId id = likeliest ? greedy : race(chosen_from, max, params, position);
  return report(logits, params, id);
}

TokenId Sampler::race(std::span<const float> logits, float max, const SamplingParams& params,
                      std::int64_t position) {
  const double scale = 1.0 / params.temperature;
  const double least =
      params.min_p > 0 ? max + params.temperature * std::log(params.min_p) : kImpossible;
  double best_key = -1;
  TokenId best = 0;
  std::array<std::uint32_t, 4> block{};
  TokenId block_of = -1;
  const auto enter = [&](TokenId id) {
    const double logit = logits[static_cast<std::size_t>(id)];
    if (logit < least || logit == kImpossible) return;
    if (id / 4 != block_of) {
      block_of = id / 4;
      block = random_block(params.seed, position, id);
    }
    const double u = to_uniform(block[static_cast<std::size_t>(id) % 4]);
    const double p = std::exp((logit - max) * scale);
    // −ln(u) ≥ 1 − u: most tokens cannot win and need no logarithm.
    if (p <= best_key * (1 - u)) return;
    const double key = p / -std::log(u);
    if (key > best_key || (key == best_key && id < best)) {
      best_key = key;
      best = id;
    }
  };
  const bool all = params.top_p >= 1 &&
                   (params.top_k == 0 || static_cast<std::size_t>(params.top_k) >= logits.size());
  if (all) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      enter(static_cast<TokenId>(i));
  } else {
    keep_top(logits, max, params);
    for (const TokenId id : kept_)
      enter(id);
  }
  return best;
}

// Leaves in kept_ the tokens that top-k and top-p let through.
void Sampler::keep_top(std::span<const float> logits, float max, const SamplingParams& params) {
  const double scale = 1.0 / params.temperature;
  const auto weight = [&](TokenId id) {
    return std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - max) * scale);
  };
  const auto likelier = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  kept_.resize(logits.size());
  std::iota(kept_.begin(), kept_.end(), 0);
  const std::size_t limit = params.top_k > 0
                                ? std::min(static_cast<std::size_t>(params.top_k), kept_.size())
                                : kept_.size();
  // The head of the distribution is sorted in growing portions: most of the vocabulary is never.
  constexpr std::size_t kFirstPortion = 1024;
  std::size_t sorted = 0;
  const auto sort_up_to = [&](std::size_t end) {
    const auto from = kept_.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto to = kept_.begin() + static_cast<std::ptrdiff_t>(end);
    if (end < kept_.size()) std::nth_element(from, to, kept_.end(), likelier);
    std::sort(from, to, likelier);
    sorted = end;
  };
  if (params.top_p >= 1) {
    sort_up_to(limit);
    kept_.resize(limit);
    return;
  }
  double total = 0;
  if (limit < kept_.size()) {
    sort_up_to(limit);
    for (std::size_t i = 0; i < limit; ++i)
      total += weight(kept_[i]);
  } else {
    for (std::size_t i = 0; i < logits.size(); ++i)
      total += weight(static_cast<TokenId>(i));
  }
  double sum = 0;
  std::size_t count = 0;
  while (count < limit) {
    if (count == sorted) sort_up_to(std::min(limit, std::max(kFirstPortion, 8 * sorted)));
    sum += weight(kept_[count++]);
    if (sum >= params.top_p * total) break;
  }
  kept_.resize(std::max<std::size_t>(count, 1));
}

}  // namespace ingot
