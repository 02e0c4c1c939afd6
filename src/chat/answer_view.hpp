#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/chat/markdown_style.hpp"
#include "src/text/stream_parser.hpp"

namespace ingot {

/// How an answer is shown.
struct AnswerStyle {
  bool terminal = false;  ///< thinking is shown, and control characters are made visible
  bool colour = false;    ///< thinking is dim, code blocks have a colour
  bool fold = false;      ///< of thinking only how much there is
};

/// Shows an answer as it comes. On a terminal thinking is shown too, dim; elsewhere only the answer
/// is written, so that a pipe gets what it asked for. One object an answer.
class AnswerView {
 public:
  using Write = std::function<void(std::string_view)>;

  AnswerView(AnswerStyle style, Write write) : style_(style), write_(std::move(write)) {}

  void show(const OutputDelta& delta);
  void end();

  /// Shows thinking from here on, with all that came before, or folds it.
  void set_fold(bool fold);
  bool folds() const { return style_.fold; }
  /// What was thought so far.
  const std::string& thought() const { return thought_; }

 private:
  void emit(std::string_view text);
  void emit_thought(std::string_view text);
  void think(std::string_view text);
  void show_folded();
  void stop_thinking();
  void show_call(const ToolCall& call);
  void start_line();

  AnswerStyle style_;
  Write write_;
  MarkdownStyle markdown_;
  std::string thought_;
  bool thinking_ = false;
  bool at_line_start_ = true;
  bool nothing_ = true;
};

/// A call of a function as people read it: its name, then an argument a line.
std::string readable_call(const ToolCall& call);

}  // namespace ingot
