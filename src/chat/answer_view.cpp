#include "src/chat/answer_view.hpp"

#include <fmt/core.h>

#include "src/checkpoint/problems.hpp"
#include "src/text/json_value.hpp"
#include "src/text/terminal_text.hpp"

namespace ingot {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kNormal = "\x1b[0m";
constexpr std::string_view kClearLine = "\r\x1b[K";

/// How many they are.
std::string characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text)
    count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return counted(count, "character");
}

}  // namespace

std::string readable_call(const ToolCall& call) {
  std::string out = fmt::format("[call {}]\n", call.name);
  const auto arguments = parse_json(call.arguments, "arguments");
  if (!arguments || arguments->kind != JsonValue::Kind::object) {
    return out + "  " + call.arguments + '\n';
  }
  for (std::size_t i = 0; i < arguments->keys.size(); ++i) {
    out += fmt::format("  {}: {}\n", arguments->keys[i], to_python_json(arguments->items[i]));
  }
  return out;
}

void AnswerView::show(const OutputDelta& delta) {
  if (!delta.reasoning.empty()) think(delta.reasoning);
  if (!delta.content.empty()) {
    stop_thinking();
    emit(delta.content);
  }
  for (const ToolCall& call : delta.tool_calls) {
    stop_thinking();
    show_call(call);
  }
}

void AnswerView::show_call(const ToolCall& call) {
  start_line();
  if (!style_.terminal) {
    emit(fmt::format("[tool call] {} {}\n", call.name, call.arguments));
    return;
  }
  const std::string text = for_terminal(readable_call(call));
  // Line by line, so that no colour reaches over the end of one.
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    write_(style_.colour ? fmt::format("{}{}{}\n", kDim, text.substr(at, end - at), kNormal)
                         : text.substr(at, end - at + 1));
    at = end + 1;
  }
  nothing_ = false;
}

void AnswerView::start_line() {
  if (!at_line_start_) emit("\n");
}

void AnswerView::end() {
  stop_thinking();
  if (style_.colour) write_(markdown_.finish());
  if (!at_line_start_ || nothing_) write_("\n");
}

void AnswerView::emit(std::string_view text) {
  if (!style_.terminal) {
    write_(text);
  } else {
    const std::string safe = for_terminal(text);
    write_(style_.colour ? markdown_.push(safe) : safe);
  }
  at_line_start_ = text.ends_with('\n');
  nothing_ = false;
}

void AnswerView::emit_thought(std::string_view text) {
  write_(for_terminal(text));
  if (!text.empty()) at_line_start_ = text.ends_with('\n');
}

void AnswerView::think(std::string_view text) {
  thought_ += text;
  if (!style_.terminal) return;
  nothing_ = false;
  if (!thinking_) {
    thinking_ = true;
    if (!style_.fold) write_(style_.colour ? kDim : "<think>\n");
  }
  if (style_.fold) return show_folded();
  emit_thought(text);
}

void AnswerView::show_folded() {
  // Without cursor movement there is only the one line at the end.
  if (!style_.colour) return;
  write_(fmt::format("{}{}thinking, {}{}", kClearLine, kDim, characters(thought_), kNormal));
}

void AnswerView::set_fold(bool fold) {
  if (fold == style_.fold) return;
  style_.fold = fold;
  if (!thinking_) return;
  if (fold) {
    if (!at_line_start_) write_("\n");
    at_line_start_ = true;
    write_(style_.colour ? kNormal : "</think>\n");
    show_folded();
  } else {
    if (style_.colour) write_(kClearLine);
    write_(style_.colour ? kDim : "<think>\n");
    emit_thought(thought_);
  }
}

void AnswerView::stop_thinking() {
  if (!thinking_) return;
  thinking_ = false;
  if (style_.fold) {
    const std::string count = characters(thought_);
    write_(style_.colour ? fmt::format("{}{}(thought for {}; Ctrl-T shows it){}\n", kClearLine,
                                       kDim, count, kNormal)
                         : fmt::format("(thought for {})\n", count));
    at_line_start_ = true;
    return;
  }
  if (!at_line_start_) write_("\n");
  at_line_start_ = true;
  write_(style_.colour ? kNormal : "</think>\n");
}

}  // namespace ingot
