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

std::optional<SampleRequest> Generation::sample_request() const {
  if (must_close_thinking()) return std::nullopt;
  return SampleRequest{&request_.sampling, &history_, position()};
}

void Generation::take(std::span<const float> logits, Sampler& sampler) {
  take(must_close_thinking() ? sampler.report(logits, request_.sampling, *control_.think_end)
                             : sampler.sample(logits, request_.sampling, history_, position()));
}

void Generation::take(Result<SampledToken> sampled) {
  if (!sampled) {
    Error error = sampled.error();
    error.message = fmt::format("{}, position {}: {}", request_.name, position(), error.message);
    fail_with(std::move(error));
    return;
  }
  const TokenId token = sampled->id;
  if (is_stop(token)) {
    result_.end_token = token;
    end_reason_ = FinishReason::stop;
    return;
  }
  if (request_.sampling.has_penalties()) ++history_.generated[token];
  result_.tokens.push_back(token);
  if (request_.sampling.top_logprobs) result_.logprobs.push_back(std::move(*sampled));
  untold_ = true;
  if (static_cast<std::int64_t>(result_.tokens.size()) >= max_tokens_) {
    end_reason_ = FinishReason::length;
  }
}

bool Generation::must_tell_first() const {
  return untold_ && request_.sampling.thinking_budget && text_.is_thinking();
}

void Generation::add(OutputDelta& delta, OutputDelta more) {
  result_.reasoning += more.reasoning;
  result_.content += more.content;
  result_.tool_calls.insert(result_.tool_calls.end(), more.tool_calls.begin(),
                            more.tool_calls.end());
  append(delta, std::move(more));
}

OutputDelta Generation::tell() {
  OutputDelta delta;
  if (std::exchange(untold_, false)) {
    const bool thought = text_.is_thinking();
    add(delta, text_.push(newest()));
    result_.thinking_ended |= thought && !text_.is_thinking();
    if (text_.is_thinking()) ++result_.thinking_tokens;
  }
  if (done_) return delta;
  if (text_.stopped()) {
    end(FinishReason::stop, delta);
  } else if (end_reason_) {
    end(*end_reason_, delta);
  }
  return delta;
}

OutputDelta Generation::cancel() {
  OutputDelta delta = tell();
  if (!done_) end(FinishReason::cancelled, delta);
  return delta;
}

void Generation::end(FinishReason reason, OutputDelta& delta) {
  add(delta, text_.finish());
  if (reason == FinishReason::stop && !result_.tool_calls.empty()) {
    reason = FinishReason::tool_calls;
  }
  result_.finish_reason = reason;
  done_ = true;
}

void Generation::fail_with(Error error) {
  result_.finish_reason = FinishReason::error;
  result_.error = std::move(error);
  done_ = true;
}

}  // namespace ingot
