#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ingot {

/// The text of a message while it is written, with a cursor that moves by what a reader sees as one
/// character. Knows neither keys nor a terminal. Lines are separated by LF.
class EditBuffer {
 public:
  const std::string& text() const { return text_; }
  /// In bytes; always a border between characters.
  std::size_t cursor() const { return cursor_; }
  bool empty() const { return text_.empty(); }
  bool at_end() const { return cursor_ == text_.size(); }

  /// Replaces all; the cursor goes to the end.
  void set(std::string text);
  void set(std::string text, std::size_t cursor);
  void clear() { set({}); }
  void insert(std::string_view text);
  /// Replaces the bytes from `begin` to the cursor.
  void replace_before_cursor(std::size_t begin, std::string_view text);

  void left();
  void right();
  void word_left();
  void word_right();
  void line_start();
  void line_end();
  void text_start() { cursor_ = 0; }
  void text_end() { cursor_ = text_.size(); }
  /// One line up or down, at the same column as far as the line has it. False on the first (last)
  /// line, where nothing moves.
  bool up();
  bool down();

  void erase_before();
  void erase_at();
  // What these take away, yank() puts back.
  void kill_to_line_end();
  void kill_to_line_start();
  void kill_word_before();
  void kill_word_after();
  void yank() { insert(killed_); }

 private:
  std::size_t line_start_of(std::size_t at) const;
  std::size_t line_end_of(std::size_t at) const;
  std::size_t at_column(std::size_t line, int column) const;
  std::size_t word_start_before(std::size_t at) const;
  std::size_t word_end_after(std::size_t at) const;
  void kill(std::size_t begin, std::size_t end);

  std::string text_;
  std::size_t cursor_ = 0;
  std::string killed_;
};

}  // namespace ingot
