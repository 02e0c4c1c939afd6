#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot::test {

/// What a terminal would show of a stream of bytes: a grid with wrapping and scrolling, the cursor
/// movements and erasures that we write, and the colours that we use. Anything else throws
/// std::runtime_error: we write nothing that every terminal does not know.
class Screen {
 public:
  Screen(int columns, int rows);

  void feed(std::string_view bytes);
  /// As most terminals: a row that becomes too long goes on in the next one.
  void resize(int columns, int rows);

  /// The rows that have left the screen and those on it, without blanks at their ends; empty rows
  /// at the end are left out.
  std::vector<std::string> lines() const;
  std::string text() const;
  /// The rows on the screen as a picture.
  std::string svg() const;
  int row() const { return row_; }
  int column() const { return column_; }
  bool bracketed_paste() const { return bracketed_paste_; }

 private:
  struct Cell {
    std::string text = " ";  ///< empty behind a wide character
    int style = 0;           ///< the number of the colour sequence; 0 is the terminal's own
    bool is_blank() const { return text == " "; }
  };
  using Row = std::vector<Cell>;

  static std::string joined(const Row& row);

  void put(std::string_view grapheme);
  void line_feed();
  void control(std::string_view parameters, char final);

  int columns_;
  int rows_;
  std::vector<Row> grid_;
  std::vector<Row> gone_;
  int row_ = 0;
  int column_ = 0;
  int style_ = 0;
  bool wrap_pending_ = false;
  bool bracketed_paste_ = false;
  std::string held_;  ///< an escape sequence or character that is not complete
};

}  // namespace ingot::test
