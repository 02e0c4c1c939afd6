#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/text/stream_parser.hpp"

namespace ingot {

/// How an answer is shown.
struct AnswerStyle {
  bool terminal = false;  ///< thinking is shown, and control characters are made visible
  bool colour = false;    ///< thinking is dim
};

/// Shows an answer as it comes. On a terminal thinking is shown too, dim; elsewhere only the answer
/// is written, so that a pipe gets what it asked for. One object an answer.
class AnswerView {
 public:
  using Write = std::function<void(std::string_view)>;

  AnswerView(AnswerStyle style, Write write) : style_(style), write_(std::move(write)) {}

  void show(const OutputDelta& delta);
  void end();

 private:
  void emit(std::string_view text);
  void think(std::string_view text);
  void stop_thinking();

  AnswerStyle style_;
  Write write_;
  bool thinking_ = false;
  bool at_line_start_ = true;
  bool nothing_ = true;
};

}  // namespace ingot
