#include "src/batch/batch_answer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "src/text/json_value.hpp"

namespace ingot {
namespace {

// What OpenAI's API writes for a token that cannot be.
constexpr float kImpossible = -9999.0f;

std::string json_string(std::string_view text) {
  return to_python_json(text);
}

/// The fields that an entry of `content` and one of `top_logprobs` share.
std::string token_fields(const TokenLogprob& token, const Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.bytes(token.id);
  Utf8Stream characters;
  std::string text = characters.push(bytes);
  text += characters.finish();
  std::string out = fmt::format("\"token\": {}, \"logprob\": {}, \"bytes\": [", json_string(text),
                                std::isfinite(token.logprob) ? token.logprob : kImpossible);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ", ",
                   static_cast<unsigned char>(bytes[i]));
  }
  return out + "]";
}

std::string logprob_list(std::span<const SampledToken> tokens, const Tokenizer& tokenizer) {
  std::string out = "[";
  for (const SampledToken& token : tokens) {
    if (out.size() > 1) out += ", ";
    out += "{" + token_fields(*token.logprob, tokenizer) + ", \"top_logprobs\": [";
    for (std::size_t i = 0; i < token.top.size(); ++i) {
      out += (i == 0 ? "{" : ", {") + token_fields(token.top[i], tokenizer) + "}";
    }
    out += "]}";
  }
  return out + "]";
}

std::string logprobs_of(const GenerationResult& result, const Tokenizer& tokenizer) {
  if (result.logprobs.empty()) return "null";
  const std::span<const SampledToken> all(result.logprobs);
  const auto thinking = static_cast<std::size_t>(result.thinking_tokens);
  std::string out =
      fmt::format("{{\"content\": {}", logprob_list(all.subspan(thinking), tokenizer));
  if (thinking > 0) {
    out += ", \"reasoning_content\": " + logprob_list(all.first(thinking), tokenizer);
  }
  return out + "}";
}

std::string message_of(const AnswerHead& head, const GenerationResult& result, bool reasoned) {
  const bool only_calls = result.content.empty() && !result.tool_calls.empty();
  std::string out = fmt::format("{{\"role\": \"assistant\", \"content\": {}",
                                only_calls ? "null" : json_string(result.content));
  if (reasoned) out += ", \"reasoning_content\": " + json_string(result.reasoning);
  if (!result.tool_calls.empty()) {
    out += ", \"tool_calls\": [";
    for (std::size_t i = 0; i < result.tool_calls.size(); ++i) {
      const ToolCall& call = result.tool_calls[i];
      fmt::format_to(
          std::back_inserter(out),
          "{}{{\"id\": \"call_{}_{}\", \"type\": \"function\", \"function\": {{\"name\": "
          "{}, \"arguments\": {}}}}}",
          i == 0 ? "" : ", ", head.line, i, json_string(call.name), json_string(call.arguments));
    }
    out += "]";
  }
  return out + "}";
}

}  // namespace

std::string answer_line(const AnswerHead& head, const GenerationResult& result,
                        const Tokenizer& tokenizer) {
  const auto completion = static_cast<std::int64_t>(result.tokens.size());
  const bool reasoned = result.thinking_tokens > 0;
  return fmt::format(
      "{{\"id\": \"batch_req_{0}\", \"custom_id\": {1}, \"response\": {{\"status_code\": 200, "
      "\"request_id\": \"req_{0}\", \"body\": {{\"id\": \"chatcmpl-{0}\", \"object\": "
      "\"chat.completion\", \"created\": 0, \"model\": {2}, \"choices\": [{{\"index\": 0, "
      "\"message\": {3}, \"logprobs\": {4}, \"finish_reason\": \"{5}\"}}], \"usage\": "
      "{{\"prompt_tokens\": {6}, \"completion_tokens\": {7}, \"total_tokens\": {8}, "
      "\"completion_tokens_details\": {{\"reasoning_tokens\": {9}}}}}}}}}, \"error\": null}}\n",
      head.line, json_string(head.custom_id), json_string(head.model),
      message_of(head, result, reasoned), logprobs_of(result, tokenizer),
      finish_reason_name(result.finish_reason), result.prompt_tokens, completion,
      result.prompt_tokens + completion, result.thinking_tokens);
}

std::string error_line(const BatchError& error) {
  return fmt::format(
      "{{\"id\": \"batch_req_{0}\", \"custom_id\": {1}, \"response\": null, \"error\": {{\"code\": "
      "{2}, \"message\": {3}, \"line\": {0}}}}}\n",
      error.line, error.custom_id ? json_string(*error.custom_id) : "null", json_string(error.code),
      json_string(fmt::format("line {}: {}", error.line, error.message)));
}

std::string text_line(std::string_view content) {
  std::string out;
  for (const char c : content) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "\n";
}

}  // namespace ingot
