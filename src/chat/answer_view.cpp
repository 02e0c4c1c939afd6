#include "src/chat/answer_view.hpp"

#include <fmt/core.h>

#include "src/text/terminal_text.hpp"

namespace ingot {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kNormal = "\x1b[0m";

}  // namespace

void AnswerView::show(const OutputDelta& delta) {
  if (style_.terminal && !delta.reasoning.empty()) think(delta.reasoning);
  if (!delta.content.empty()) {
    stop_thinking();
    emit(delta.content);
  }
  for (const ToolCall& call : delta.tool_calls) {
    stop_thinking();
    if (!at_line_start_) emit("\n");
    emit(fmt::format("[tool call] {} {}\n", call.name, call.arguments));
  }
}

void AnswerView::end() {
  stop_thinking();
  if (!at_line_start_ || nothing_) write_("\n");
}

void AnswerView::emit(std::string_view text) {
  write_(style_.terminal ? for_terminal(text) : std::string(text));
  at_line_start_ = text.ends_with('\n');
  nothing_ = false;
}

void AnswerView::think(std::string_view text) {
  if (!thinking_) write_(style_.colour ? kDim : "<think>\n");
  thinking_ = true;
  emit(text);
}

void AnswerView::stop_thinking() {
  if (!thinking_) return;
  thinking_ = false;
  if (!at_line_start_) emit("\n");
  write_(style_.colour ? kNormal : "</think>\n");
}

}  // namespace ingot
