#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ingot {

/// Colours the code blocks of Markdown in a text that comes in pieces. It only adds colour
/// sequences: without them the output is the input, so what is copied from the screen is what the
/// model wrote. A line begins and ends uncoloured. The joined output does not depend on how the
/// text was cut; at most the beginning of a line that may become a fence is held back. Source:
/// CommonMark 0.31, 4.5.
class MarkdownStyle {
 public:
  std::string push(std::string_view text);
  /// Releases what was held back; the colour is the terminal's own afterwards.
  std::string finish();

 private:
  enum class Line { undecided, text, code, fence };

  void take(char c, std::string& out);
  void decide(std::string& out);
  void end_line(std::string& out);

  std::string held_;  ///< the line so far, while it is undecided
  Line line_ = Line::undecided;
  bool in_code_ = false;
  char fence_ = 0;  ///< of the block that is open: ` or ~
  std::size_t fence_size_ = 0;
  std::string fence_line_;  ///< a fence's line as far as it came
};

}  // namespace ingot
