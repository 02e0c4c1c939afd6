#include "src/batch/batch_answer.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>

#include "src/text/json_value.hpp"
#include "src/text/utf8.hpp"

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
  const auto answer = static_cast<std::size_t>(result.answer_begin());
  std::string out = fmt::format("{{\"content\": {}", logprob_list(all.subspan(answer), tokenizer));
  if (thinking > 0) {
    out += ", \"reasoning_content\": " + logprob_list(all.first(thinking), tokenizer);
  }
  return out + "}";
}

std::string message_of(const AnswerHead& head, std::size_t choice, const GenerationResult& result) {
  const bool reasoned = result.thinking_tokens > 0;
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
          "{}{{\"id\": \"call_{}_{}{}\", \"type\": \"function\", \"function\": {{\"name\": "
          "{}, \"arguments\": {}}}}}",
          i == 0 ? "" : ", ", head.line, choice == 0 ? "" : fmt::format("{}_", choice), i,
          json_string(call.name), json_string(call.arguments));
    }
    out += "]";
  }
  return out + "}";
}

std::string chat_choice(const AnswerHead& head, std::size_t choice, const GenerationResult& result,
                        const Tokenizer& tokenizer) {
  return fmt::format(
      "{{\"index\": {}, \"message\": {}, \"logprobs\": {}, \"finish_reason\": \"{}\"}}", choice,
      message_of(head, choice, result), logprobs_of(result, tokenizer),
      finish_reason_name(result.finish_reason));
}

/// The logprobs of a completion: lists beside each other, texts instead of bytes.
std::string completion_logprobs(const GenerationResult& result, const Tokenizer& tokenizer) {
  if (result.logprobs.empty()) return "null";
  const auto text_of = [&](TokenId id) {
    std::string mended;
    return json_string(mend_utf8(tokenizer.bytes(id), mended));
  };
  const auto logprob = [](const TokenLogprob& token) {
    return std::isfinite(token.logprob) ? token.logprob : kImpossible;
  };
  std::string tokens, logprobs, tops, offsets;
  std::size_t offset = 0;
  for (const SampledToken& token : result.logprobs) {
    const std::string_view comma = tokens.empty() ? "" : ", ";
    tokens += fmt::format("{}{}", comma, text_of(token.id));
    logprobs += fmt::format("{}{}", comma, logprob(*token.logprob));
    offsets += fmt::format("{}{}", comma, offset);
    offset += tokenizer.bytes(token.id).size();
    std::string top;
    for (const TokenLogprob& each : token.top) {
      top += fmt::format("{}{}: {}", top.empty() ? "" : ", ", text_of(each.id), logprob(each));
    }
    tops += fmt::format("{}{{{}}}", comma, top);
  }
  return fmt::format(
      "{{\"tokens\": [{}], \"token_logprobs\": [{}], \"top_logprobs\": [{}], "
      "\"text_offset\": [{}]}}",
      tokens, logprobs, tops, offsets);
}

std::string completion_choice(std::size_t choice, const GenerationResult& result,
                              const Tokenizer& tokenizer) {
  return fmt::format("{{\"text\": {}, \"index\": {}, \"logprobs\": {}, \"finish_reason\": \"{}\"}}",
                     json_string(result.content), choice, completion_logprobs(result, tokenizer),
                     finish_reason_name(result.finish_reason));
}

}  // namespace

std::string answer_line(const AnswerHead& head, std::span<const GenerationResult> choices,
                        const Tokenizer& tokenizer) {
  const bool chat = head.endpoint == BatchEndpoint::chat;
  std::int64_t completion = 0;
  std::int64_t thinking = 0;
  std::string list;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    completion += static_cast<std::int64_t>(choices[i].tokens.size());
    thinking += choices[i].thinking_tokens;
    if (i > 0) list += ", ";
    list += chat ? chat_choice(head, i, choices[i], tokenizer)
                 : completion_choice(i, choices[i], tokenizer);
  }
  const std::int64_t prompt = choices[0].prompt_tokens;
  return fmt::format(
      "{{\"id\": \"batch_req_{0}\", \"custom_id\": {1}, \"response\": {{\"status_code\": 200, "
      "\"request_id\": \"req_{0}\", \"body\": {{\"id\": \"{2}-{0}\", \"object\": "
      "\"{3}\", \"created\": 0, \"model\": {4}, \"choices\": [{5}], \"usage\": "
      "{{\"prompt_tokens\": {6}, \"completion_tokens\": {7}, \"total_tokens\": {8}{9}}}}}}}, "
      "\"error\": null}}\n",
      head.line, json_string(head.custom_id), chat ? "chatcmpl" : "cmpl",
      chat ? "chat.completion" : "text_completion", json_string(head.model), list, prompt,
      completion, prompt + completion,
      chat ? fmt::format(", \"completion_tokens_details\": {{\"reasoning_tokens\": {}}}", thinking)
           : "");
}

std::string error_line(const BatchError& error) {
  return fmt::format(
      "{{\"id\": \"batch_req_{0}\", \"custom_id\": {1}, \"response\": null, \"error\": {{\"code\": "
      "{2}, \"message\": {3}, \"line\": {0}}}}}\n",
      error.line, error.custom_id ? json_string(*error.custom_id) : "null", json_string(error.code),
      json_string(fmt::format("line {}: {}", error.line, error.message)));
}

namespace {

constexpr std::string_view kIdPrefix = "batch_req_";

bool take_number(std::string_view text, std::int64_t& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && stop == text.data() + text.size() && number >= 1;
}

/// A line as answer_line() and error_line() write it: all that is wanted stands in front, and what
/// may be long is not looked at.
std::optional<AnswerLine> parse_own_line(std::string_view line) {
  const auto skip = [&](std::string_view text) {
    if (!line.starts_with(text)) return false;
    line.remove_prefix(text.size());
    return true;
  };
  AnswerLine out;
  if (!skip("{\"id\": \"") || !skip(kIdPrefix)) return std::nullopt;
  const std::size_t quote = line.find('"');
  if (quote == std::string_view::npos || !take_number(line.substr(0, quote), out.line)) {
    return std::nullopt;
  }
  line.remove_prefix(quote);
  if (!skip("\", \"custom_id\": ")) return std::nullopt;
  if (!skip("null")) {
    std::size_t end = 1;
    while (end < line.size() && line[end] != '"')
      end += line[end] == '\\' ? 2 : 1;
    if (end >= line.size()) return std::nullopt;
    const auto id = parse_json(line.substr(0, end + 1), "custom_id");
    if (!id || id->kind != JsonValue::Kind::string) return std::nullopt;
    out.custom_id = id->text;
    line.remove_prefix(end + 1);
  }
  if (!skip(", \"response\": ")) return std::nullopt;
  if (line.find('\0') != std::string_view::npos) return std::nullopt;
  constexpr std::string_view kFailed = "null, \"error\": {";
  out.failed = line.starts_with(kFailed);
  out.repeats =
      out.failed &&
      line.substr(kFailed.size()).starts_with(fmt::format("\"code\": \"{}\"", kDuplicateId));
  const bool whole = out.failed ? line.ends_with("}}") : line.ends_with(", \"error\": null}");
  return whole ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace

std::optional<AnswerLine> parse_answer_line(std::string_view line) {
  using Kind = JsonValue::Kind;
  while (line.ends_with('\n') || line.ends_with('\r'))
    line.remove_suffix(1);
  if (auto own = parse_own_line(line)) return own;
  const auto parsed = parse_json(line, "the line");  // perhaps another program wrote it anew
  if (!parsed || parsed->kind != Kind::object) return std::nullopt;
  const JsonValue* id = parsed->find("id");
  const JsonValue* custom_id = parsed->find("custom_id");
  const JsonValue* error = parsed->find("error");
  if (id == nullptr || custom_id == nullptr || error == nullptr || id->kind != Kind::string ||
      (custom_id->kind != Kind::string && custom_id->kind != Kind::null)) {
    return std::nullopt;
  }
  AnswerLine out;
  if (!id->text.starts_with(kIdPrefix) ||
      !take_number(std::string_view(id->text).substr(kIdPrefix.size()), out.line)) {
    return std::nullopt;
  }
  if (custom_id->kind == Kind::string) out.custom_id = custom_id->text;
  out.failed = error->kind != Kind::null;
  const JsonValue* code = error->kind == Kind::object ? error->find("code") : nullptr;
  out.repeats = code != nullptr && code->kind == Kind::string && code->text == kDuplicateId;
  return out;
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
