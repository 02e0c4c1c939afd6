#include "src/chat/transcript.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/chat/answer_view.hpp"
#include "src/text/chat_json.hpp"

namespace ingot {
namespace {

std::string_view heading(Role role) {
  switch (role) {
    case Role::system:
      return "System";
    case Role::user:
      return "User";
    case Role::developer:
      return "Developer";
    case Role::latest_reminder:
      return "Reminder";
    case Role::assistant:
      return "Assistant";
    case Role::tool:
      return "Result";
  }
  return "";
}

/// In backticks, more of them than the text has in a row.
std::string fenced(std::string_view text) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(std::max<std::size_t>(3, longest + 1), '`');
  return fmt::format("{}\n{}{}{}\n", fence, text, text.ends_with('\n') ? "" : "\n", fence);
}

}  // namespace

std::string as_markdown(std::span<const ChatMessage> messages) {
  std::string out;
  for (const ChatMessage& message : messages) {
    if (!out.empty()) out += '\n';
    out += fmt::format("## {}\n", heading(message.role));
    if (!message.reasoning.empty()) {
      out += fmt::format("\n<details><summary>Thinking</summary>\n\n{}\n</details>\n",
                         fenced(message.reasoning));
    }
    if (message.role == Role::tool) {
      out += '\n' + fenced(message.content);
    } else if (!message.content.empty()) {
      out += fmt::format("\n{}{}", message.content, message.content.ends_with('\n') ? "" : "\n");
    }
    for (const std::string& tool : message.tools)
      out += '\n' + fenced(tool);
    for (const ToolCall& call : message.tool_calls)
      out += '\n' + fenced(readable_call(call));
  }
  return out;
}

std::string as_json_lines(std::span<const ChatMessage> messages) {
  std::string out;
  for (const ChatMessage& message : messages)
    out += chat_message_json(message) + '\n';
  return out;
}

std::string attachment(std::string_view name, std::string_view text) {
  return fmt::format("{}:\n\n{}\n", name, fenced(text));
}

}  // namespace ingot
