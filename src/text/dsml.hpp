#pragma once

#include <span>
#include <string_view>

#include "src/text/chat_encoding.hpp"

namespace ingot {

/// Collects a prompt; neighbouring pieces of one kind become one.
class PromptBuilder {
 public:
  /// Text of ours, in which control tokens are recognised.
  void control(std::string_view text) { append(text, true); }
  /// Text of a message, in which they are not.
  void text(std::string_view text) { append(text, false); }

  Prompt take() { return std::move(prompt_); }

 private:
  void append(std::string_view text, bool is_control);

  Prompt prompt_;
};

/// The tools block: how to call, then one schema a line.
/// @param tools JSON text of each function object; written with Python's separators.
/// Error: invalid_argument where one is no JSON object.
[[nodiscard]] Result<void> write_tools(PromptBuilder& prompt, std::span<const std::string> tools);

/// The tool-call block of an assistant turn. Arguments that are not a JSON object go whole into one
/// string parameter `arguments`.
void write_tool_calls(PromptBuilder& prompt, std::span<const ToolCall> calls);

}  // namespace ingot
