#include "src/chat/turn_report.hpp"

#include <fmt/core.h>

#include "src/checkpoint/problems.hpp"
#include "src/text/chat_json.hpp"
#include "src/text/json_value.hpp"

namespace ingot {

double decode_tokens_per_s(const TurnStats& stats) {
  const double decode_s = stats.total_s - stats.first_token_s;
  const auto later = static_cast<double>(stats.generated_tokens - 1);
  return later > 0 && decode_s > 0 ? later / decode_s : 0.0;
}

std::string turn_line(const TurnStats& stats) {
  std::string line = fmt::format("prompt {}, cached {}", stats.prompt_tokens, stats.reused_tokens);
  if (!stats.any_token() && stats.unread_tokens > 0) {
    return line + fmt::format("; stopped after reading {} of {} tokens in {:.3f} s",
                              stats.prompt_tokens - stats.unread_tokens, stats.prompt_tokens,
                              stats.total_s);
  }
  if (stats.thinking_tokens > 0) line += fmt::format("; thinking {}", stats.thinking_tokens);
  line += fmt::format("; answer {}; ",
                      counted(static_cast<std::uint64_t>(stats.answer_tokens), "token"));
  if (stats.first_token_s > 0) {
    line += fmt::format("first token {:.3f} s, {:.1f} tokens/s; ", stats.first_token_s,
                        decode_tokens_per_s(stats));
  }
  line += fmt::format("context {} of {}", stats.context_tokens, stats.context_limit);
  if (stats.finish_reason == FinishReason::cancelled) line += "; stopped";
  if (stats.finish_reason == FinishReason::length) {
    line += stats.context_tokens >= stats.context_limit ? "; the context is full"
                                                        : "; cut at max_tokens";
  }
  return line;
}

std::string turn_json(const TurnStats& stats) {
  return fmt::format(
      "{{\"prompt_tokens\": {}, \"cached_tokens\": {}, \"prefilled_tokens\": {}, "
      "\"thinking_tokens\": {}, \"answer_tokens\": {}, \"finish_reason\": \"{}\", "
      "\"first_token_s\": {}, \"total_s\": {}, \"tokens_per_s\": {}, \"context_tokens\": {}, "
      "\"context_limit\": {}}}",
      stats.prompt_tokens, stats.reused_tokens, stats.prefilled_tokens(), stats.thinking_tokens,
      stats.answer_tokens, finish_reason_name(stats.finish_reason),
      stats.first_token_s > 0 ? python_float(stats.first_token_s) : "null",
      python_float(stats.total_s), python_float(decode_tokens_per_s(stats)), stats.context_tokens,
      stats.context_limit);
}

std::string totals_json(int answers, const TurnStats& totals) {
  return fmt::format(
      "{{\"totals\": {{\"answers\": {}, \"prompt_tokens\": {}, \"cached_tokens\": {}, "
      "\"prefilled_tokens\": {}, \"thinking_tokens\": {}, \"answer_tokens\": {}, "
      "\"total_s\": {}}}}}",
      answers, totals.prompt_tokens, totals.reused_tokens, totals.prefilled_tokens(),
      totals.thinking_tokens, totals.answer_tokens, python_float(totals.total_s));
}

std::string answer_json(const ChatMessage& answer, const TurnStats& stats) {
  std::string out = chat_message_json(answer);
  out.pop_back();
  return fmt::format("{}, \"finish_reason\": \"{}\", \"stats\": {}}}", out,
                     finish_reason_name(stats.finish_reason), turn_json(stats));
}

}  // namespace ingot
