#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// What the user is to see while a message is written.
struct LineShown {
  std::string_view prompt;        ///< before the first line
  std::string_view continuation;  ///< before each later one; as wide as you like
  std::string_view text;
  std::size_t cursor = 0;  ///< in text, a border between characters
  std::string_view hint = {};
};

/// Draws a message that is being edited: says which bytes bring the terminal from what the last
/// draw() left to what is to be seen now. Wraps lines itself, at whole characters, so that it
/// always knows where it is; of a text higher than the terminal it shows the rows around the
/// cursor. The bytes are cursor movements and text alone: no colour, no absolute place.
class LineView {
 public:
  LineView(int columns, int rows) { resize(columns, rows); }

  /// The terminal has a new size. Lines that it has wrapped anew are reckoned with.
  void resize(int columns, int rows);

  std::string draw(const LineShown& shown);
  /// Leaves the cursor at the beginning of the line below what was drawn.
  std::string finish();
  /// Takes what was drawn away.
  std::string erase();
  /// Nothing is on the screen any more: the cursor is at the beginning of a line.
  void forget();

 private:
  struct Row {
    std::string bytes;
    int width = 0;
  };
  struct Rows;

  int columns_ = 80;
  int rows_ = 24;
  std::size_t top_ = 0;      ///< the first row of the text that is on the screen
  std::vector<int> widths_;  ///< of the rows on the screen
  std::size_t row_ = 0;      ///< where the cursor is among them
  int column_ = 0;
};

}  // namespace ingot
