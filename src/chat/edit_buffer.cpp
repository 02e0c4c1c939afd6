#include "src/chat/edit_buffer.hpp"

#include <algorithm>
#include <utility>

#include "src/chat/text_width.hpp"

namespace ingot {
namespace {

/// Letters of any script, digits and underscores; all beyond ASCII counts as a letter.
bool is_word_byte(char byte) {
  const auto c = static_cast<unsigned char>(byte);
  return c >= 0x80 || c == '_' || (c >= '0' && c <= '9') ||
         ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

}  // namespace

void EditBuffer::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditBuffer::set(std::string text, std::size_t cursor) {
  text_ = std::move(text);
  cursor_ = std::min(cursor, text_.size());
}

void EditBuffer::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void EditBuffer::replace_before_cursor(std::size_t begin, std::string_view text) {
  text_.replace(begin, cursor_ - begin, text);
  cursor_ = begin + text.size();
}

void EditBuffer::left() {
  cursor_ = previous_grapheme(text_, cursor_);
}

void EditBuffer::right() {
  if (!at_end()) cursor_ = next_grapheme(text_, cursor_);
}

std::size_t EditBuffer::word_start_before(std::size_t at) const {
  while (at > 0 && !is_word_byte(text_[at - 1]))
    --at;
  while (at > 0 && is_word_byte(text_[at - 1]))
    --at;
  return at;
}

std::size_t EditBuffer::word_end_after(std::size_t at) const {
  while (at < text_.size() && !is_word_byte(text_[at]))
    ++at;
  while (at < text_.size() && is_word_byte(text_[at]))
    ++at;
  return at;
}

void EditBuffer::word_left() {
  cursor_ = word_start_before(cursor_);
}

void EditBuffer::word_right() {
  cursor_ = word_end_after(cursor_);
}

std::size_t EditBuffer::line_start_of(std::size_t at) const {
  if (at == 0) return 0;
  const std::size_t feed = text_.rfind('\n', at - 1);
  return feed == std::string::npos ? 0 : feed + 1;
}

std::size_t EditBuffer::line_end_of(std::size_t at) const {
  return std::min(text_.find('\n', at), text_.size());
}

void EditBuffer::line_start() {
  cursor_ = line_start_of(cursor_);
}

void EditBuffer::line_end() {
  cursor_ = line_end_of(cursor_);
}

std::size_t EditBuffer::at_column(std::size_t line, int column) const {
  const auto text = std::string_view(text_).substr(line, line_end_of(line) - line);
  return line + cut_to_width(text, column).size();
}

bool EditBuffer::up() {
  const std::size_t start = line_start_of(cursor_);
  if (start == 0) return false;
  const int column = display_width(std::string_view(text_).substr(start, cursor_ - start));
  cursor_ = at_column(line_start_of(start - 1), column);
  return true;
}

bool EditBuffer::down() {
  const std::size_t start = line_start_of(cursor_);
  const std::size_t end = line_end_of(cursor_);
  if (end == text_.size()) return false;
  const int column = display_width(std::string_view(text_).substr(start, cursor_ - start));
  cursor_ = at_column(end + 1, column);
  return true;
}

void EditBuffer::erase_before() {
  replace_before_cursor(previous_grapheme(text_, cursor_), "");
}

void EditBuffer::erase_at() {
  if (!at_end()) text_.erase(cursor_, next_grapheme(text_, cursor_) - cursor_);
}

void EditBuffer::kill(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  killed_ = text_.substr(begin, end - begin);
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void EditBuffer::kill_to_line_end() {
  const std::size_t end = line_end_of(cursor_);
  // At the end of a line the break goes.
  kill(cursor_, end == cursor_ && end < text_.size() ? end + 1 : end);
}

void EditBuffer::kill_to_line_start() {
  kill(line_start_of(cursor_), cursor_);
}

void EditBuffer::kill_word_before() {
  kill(word_start_before(cursor_), cursor_);
}

void EditBuffer::kill_word_after() {
  kill(cursor_, word_end_after(cursor_));
}

}  // namespace ingot
