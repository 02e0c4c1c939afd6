#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/text/chat_message.hpp"

namespace ingot {

/// What a piece of the model's output turned out to be.
struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;  ///< calls that became complete; ids are left empty

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

/// Separates a stream of output text into thinking, answer and tool calls. Holds back text that may
/// still become a marker or a character. Joined deltas do not depend on how the stream was cut.
/// Source: model specification 6.3, with a server's tolerance: a call that is cut off or malformed
/// is handed on as content, verbatim, and `error()` says why.
class StreamParser {
 public:
  /// @param thinking whether the prompt ended in <think>
  explicit StreamParser(bool thinking);

  OutputDelta push(std::string_view text);
  /// Releases what was held back; call once, at the end of the output.
  OutputDelta finish();

  bool is_thinking() const { return state_ == State::reasoning; }
  bool in_tool_calls() const { return state_ == State::tool_calls; }
  /// Why the tool-call block was not understood; empty while all is well.
  const std::string& error() const { return error_; }

 private:
  enum class State { reasoning, content, tool_calls, after_tool_calls };

  State state_;
  std::string held_;
  std::string error_;
};

}  // namespace ingot
