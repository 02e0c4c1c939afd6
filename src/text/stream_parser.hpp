#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "src/text/chat_message.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// What a piece of the model's output turned out to be.
struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;  ///< calls that became complete; ids are left empty

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

/// Separates a stream of output text into thinking, answer and tool calls. Holds back text that may
/// still become a marker or a character. Joined deltas do not depend on how the stream was cut, and
/// each is UTF-8. Time is linear in the output however small its pieces are.
///
/// Source: model specification 6.3, with a server's tolerance:
/// - only </think> ends thinking;
/// - a block of tool calls begins after two newlines, or after at most two that begin the answer;
/// - white space between the tags of a block does not matter;
/// - a call that is cut off or malformed (also by a parameter given twice), and whatever follows
///   it, is handed on as content, verbatim, as is text after the block; `error()` says why;
/// - calls that are complete stand, also where the end of their block is missing.
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
  enum class State { reasoning, content, tool_calls, after_tool_calls, verbatim };
  enum class Place { block_tag, between_calls, invoke_tag, in_call, parameter };

  void run(OutputDelta& out);
  // Each deals with what it can and says whether the next step may do more.
  bool step_reasoning(OutputDelta& out);
  bool step_content(OutputDelta& out);
  bool step_tool_calls(OutputDelta& out);
  bool step_after_tool_calls();
  bool close_block_tag();
  bool read_between_calls();
  bool read_invoke_tag();
  bool read_in_call(OutputDelta& out);
  bool read_parameter();

  std::string_view rest() const { return std::string_view(held_).substr(at_); }
  void skip_space();
  void enter(Place place, std::size_t at);
  std::size_t find_new(std::string_view marker);
  void hand_on(std::string& to, std::size_t bytes);
  bool open_block(std::size_t begin, std::size_t end);
  bool give_up(std::string why);

  Utf8Stream utf8_;
  State state_;
  std::string held_;
  std::size_t unit_ = 0;      ///< in held_: what came before is handed on; what follows is not
  std::size_t at_ = 0;        ///< in held_: what came before is understood
  std::size_t searched_ = 0;  ///< in held_: what is looked for does not begin before here
  bool answer_begun_ = false;
  std::string error_;

  // Of the block of tool calls that is being read.
  Place place_ = Place::block_tag;
  bool any_call_ = false;
  ToolCall call_;
  std::unordered_set<std::string> parameters_;
};

}  // namespace ingot
