#include "src/schedule/generation.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace ingot {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::tool_calls:
      return "tool_calls";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "error";
}

ControlTokens ControlTokens::find(const Tokenizer& tokenizer, TokenId eos) {
  return {eos, tokenizer.added_token("<｜User｜>"), tokenizer.added_token("</think>")};
}

Generation::Generation(GenerationRequest request, const Tokenizer& tokenizer,
                       const ControlTokens& control, std::int64_t limit)
    : request_(std::move(request)),
      control_(control),
      max_tokens_(std::min(request_.sampling.max_tokens.value_or(limit), limit)),
      text_(tokenizer, request_.sampling.stop, request_.thinking, request_.plain) {
  result_.prompt_tokens = static_cast<std::int64_t>(request_.prompt.size());
  if (request_.sampling.has_penalties()) {
    history_.prompt.insert(request_.prompt.begin(), request_.prompt.end());
  }
}

bool Generation::is_stop(TokenId token) const {
  const auto& own = request_.sampling.stop_ids;
  if (std::find(own.begin(), own.end(), token) != own.end()) return true;
  if (request_.sampling.ignore_eos) return false;
  return token == control_.eos || (token == control_.user && !request_.plain);
}

bool Generation::must_close_thinking() const {
  return text_.is_thinking() && request_.sampling.thinking_budget &&
         result_.thinking_tokens >= *request_.sampling.thinking_budget && control_.think_end;
}

void Generation::remember(TokenId token) {
  if (request_.sampling.has_penalties()) ++history_.generated[token];
  result_.tokens.push_back(token);
  if (text_.is_thinking()) ++result_.thinking_tokens;
}

OutputDelta Generation::accept(std::span<const float> logits, Sampler& sampler) {
  const std::int64_t position =
      result_.prompt_tokens + static_cast<std::int64_t>(result_.tokens.size());
  auto sampled = must_close_thinking()
                     ? sampler.report(logits, request_.sampling, *control_.think_end)
                     : sampler.sample(logits, request_.sampling, history_, position);
  if (!sampled) {
    Error error = sampled.error();
    error.message = fmt::format("{}, position {}: {}", request_.name, position, error.message);
    fail_with(std::move(error));
    return {};
  }
  if (is_stop(sampled->id)) {
    result_.end_token = sampled->id;
    return end(FinishReason::stop);
  }
  remember(sampled->id);
  OutputDelta delta = text_.push(sampled->id);
  if (request_.sampling.top_logprobs) result_.logprobs.push_back(std::move(*sampled));
  result_.reasoning += delta.reasoning;
  result_.content += delta.content;
  result_.tool_calls.insert(result_.tool_calls.end(), delta.tool_calls.begin(),
                            delta.tool_calls.end());
  if (text_.stopped()) {
    append(delta, end(FinishReason::stop));
  } else if (static_cast<std::int64_t>(result_.tokens.size()) >= max_tokens_) {
    append(delta, end(FinishReason::length));
  }
  return delta;
}

OutputDelta Generation::end(FinishReason reason) {
  OutputDelta delta = text_.finish();
  result_.reasoning += delta.reasoning;
  result_.content += delta.content;
  result_.tool_calls.insert(result_.tool_calls.end(), delta.tool_calls.begin(),
                            delta.tool_calls.end());
  if (reason == FinishReason::stop && !result_.tool_calls.empty()) {
    reason = FinishReason::tool_calls;
  }
  result_.finish_reason = reason;
  done_ = true;
  return delta;
}

void Generation::fail_with(Error error) {
  result_.finish_reason = FinishReason::error;
  result_.error = std::move(error);
  done_ = true;
}

}  // namespace ingot
