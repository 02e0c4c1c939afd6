#include "src/sampler/sampling_params.hpp"

#include <fmt/core.h>

namespace ingot {
namespace {

constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 1024;

// Written so that NaN is outside every range.
bool within(double value, double low, double high) {
  return value >= low && value <= high;
}

Unexpected out_of_range(std::string_view field, double value, std::string_view range) {
  return fail(ErrorCode::invalid_argument,
              fmt::format("{} is {}: it must be {}", field, value, range));
}

Result<void> check_id(std::string_view field, TokenId id, int vocab_size) {
  if (id >= 0 && id < vocab_size) return {};
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("{} names token {}: the vocabulary has ids 0 to {}", field, id, vocab_size - 1));
}

}  // namespace

Result<void> validate(const SamplingParams& params, int vocab_size) {
  if (!within(params.temperature, 0, 2)) {
    return out_of_range("temperature", params.temperature, "from 0 to 2");
  }
  if (!within(params.top_p, 0, 1)) return out_of_range("top_p", params.top_p, "from 0 to 1");
  if (params.top_k < 0) return out_of_range("top_k", params.top_k, "0 (off) or more");
  if (!within(params.min_p, 0, 1)) return out_of_range("min_p", params.min_p, "from 0 to 1");
  if (!(within(params.repetition_penalty, 0, 10) && params.repetition_penalty > 0)) {
    return out_of_range("repetition_penalty", params.repetition_penalty, "above 0 and at most 10");
  }
  if (!within(params.presence_penalty, -2, 2)) {
    return out_of_range("presence_penalty", params.presence_penalty, "from -2 to 2");
  }
  if (!within(params.frequency_penalty, -2, 2)) {
    return out_of_range("frequency_penalty", params.frequency_penalty, "from -2 to 2");
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (auto known = check_id("logit_bias", id, vocab_size); !known) return known;
    if (!within(bias, -100, 100)) {
      return out_of_range(fmt::format("logit_bias of token {}", id), bias, "from -100 to 100");
    }
  }
  if (params.top_logprobs &&
      !(*params.top_logprobs >= 0 && *params.top_logprobs <= kMaxTopLogprobs)) {
    return out_of_range("top_logprobs", *params.top_logprobs,
                        fmt::format("from 0 to {}", kMaxTopLogprobs));
  }
  if (params.stop.size() > kMaxStops) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("stop holds {} strings: at most {} are allowed", params.stop.size(),
                            kMaxStops));
  }
  for (const std::string& stop : params.stop) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("a stop string has {} bytes: it must have 1 to {}", stop.size(),
                              kMaxStopBytes));
    }
  }
  for (const TokenId id : params.stop_ids) {
    if (auto known = check_id("stop_ids", id, vocab_size); !known) return known;
  }
  if (params.max_tokens && *params.max_tokens < 1) {
    return out_of_range("max_tokens", static_cast<double>(*params.max_tokens), "1 or more");
  }
  if (params.thinking_budget && *params.thinking_budget < 0) {
    return out_of_range("thinking_budget", static_cast<double>(*params.thinking_budget),
                        "0 or more");
  }
  return {};
}

}  // namespace ingot
