#include "src/chat/line_view.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/chat/text_width.hpp"
#include "src/text/terminal_text.hpp"

namespace ingot {
namespace {

constexpr int kTabColumns = 8;
/// Of a longer text only the part around the cursor is laid out: a key then costs the same however
/// much was pasted. More than any screen shows.
constexpr std::size_t kMostLaidOut = std::size_t{64} << 10;

std::string up(std::size_t rows) {
  return rows == 0 ? std::string() : fmt::format("\x1b[{}A", rows);
}

std::string to_column(int column) {
  return column == 0 ? "\r" : fmt::format("\r\x1b[{}C", column);
}

bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

/// Cuts a long text down to what lies around the cursor.
LineShown around_cursor(LineShown shown) {
  if (shown.text.size() <= kMostLaidOut) return shown;
  std::size_t begin = shown.cursor - std::min(shown.cursor, kMostLaidOut / 2);
  std::size_t end = std::min(begin + kMostLaidOut, shown.text.size());
  while (is_inside_character(shown.text, begin))
    --begin;
  while (is_inside_character(shown.text, end))
    ++end;
  if (begin > 0) shown.prompt = shown.continuation;
  shown.text = shown.text.substr(begin, end - begin);
  shown.cursor -= begin;
  return shown;
}

}  // namespace

/// A text laid out in rows, and where its cursor is.
struct LineView::Rows {
  explicit Rows(int width) : columns(width) { rows.emplace_back(); }

  void put(std::string_view bytes, int width) {
    if (rows.back().width + width > columns) rows.emplace_back();
    rows.back().bytes += bytes;
    rows.back().width += width;
  }
  void put_text(std::string_view text, std::size_t text_cursor) {
    for (std::size_t at = 0; at < text.size();) {
      if (at == text_cursor) mark_cursor();
      const std::size_t end = next_grapheme(text, at);
      const std::string_view grapheme = text.substr(at, end - at);
      if (grapheme == "\t") {
        // To the next stop, or to the end of the row.
        const int used = rows.back().width % columns;
        const int width = std::min(kTabColumns - used % kTabColumns, columns - used);
        put(std::string(static_cast<std::size_t>(width), ' '), width);
      } else {
        put(for_terminal(grapheme), grapheme_width(grapheme));
      }
      // The cursor inside a character (the history's search finds bytes) stands before it.
      if (at < text_cursor && text_cursor < end) mark_cursor();
      at = end;
    }
  }
  /// The place of the next character.
  void mark_cursor() {
    if (rows.back().width >= columns) rows.emplace_back();
    cursor_row = rows.size() - 1;
    cursor_column = rows.back().width;
  }

  int columns;
  std::vector<Row> rows;
  std::size_t cursor_row = 0;
  int cursor_column = 0;
};

void LineView::resize(int columns, int rows) {
  columns = std::max(columns, 2);  // the widest character
  // The terminal has wrapped each row that became too long.
  std::size_t row = 0;
  std::vector<int> widths;
  for (std::size_t i = 0; i < widths_.size(); ++i) {
    if (i == row_) row = widths.size() + static_cast<std::size_t>(column_ / columns);
    int left = widths_[i];
    do {
      widths.push_back(std::min(left, columns));
      left -= columns;
    } while (left > 0);
  }
  row_ = row;
  column_ = column_ % columns;
  widths_ = std::move(widths);
  columns_ = columns;
  rows_ = std::max(rows, 1);
}

std::string LineView::draw(const LineShown& asked) {
  const LineShown shown = around_cursor(asked);
  Rows laid(columns_);
  laid.put_text(shown.prompt, std::string_view::npos);
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(shown.text.find('\n', at), shown.text.size());
    laid.put_text(shown.text.substr(at, end - at), shown.cursor - at);
    if (shown.cursor == end) laid.mark_cursor();
    if (end == shown.text.size()) break;
    laid.rows.emplace_back();
    laid.put_text(shown.continuation, std::string_view::npos);
    at = end + 1;
  }
  const std::size_t text_rows = laid.rows.size();
  if (!shown.hint.empty()) {
    laid.rows.emplace_back();
    laid.put_text(shown.hint, std::string_view::npos);
  }

  // Which rows fit: those of the hint go first, then those far from the cursor.
  const auto room = static_cast<std::size_t>(rows_);
  const std::size_t total = laid.rows.size();
  if (total <= room) {
    top_ = 0;
  } else {
    if (laid.cursor_row < top_) top_ = laid.cursor_row;
    if (laid.cursor_row >= top_ + room) top_ = laid.cursor_row - room + 1;
    top_ = std::min(top_, std::max(text_rows, room) - room);
  }
  const std::size_t bottom = std::min(total, top_ + room);

  std::string out = up(row_) + "\r";
  widths_.clear();
  for (std::size_t i = top_; i < bottom; ++i) {
    // Cleared before it is written: behind a full row the cursor still stands on its last column.
    out += i + 1 == bottom ? "\x1b[J" : "\x1b[K";
    out += laid.rows[i].bytes;
    if (i + 1 < bottom) out += "\r\n";
    widths_.push_back(laid.rows[i].width);
  }
  row_ = laid.cursor_row - top_;
  column_ = laid.cursor_column;
  out += up(bottom - top_ - 1 - row_) + to_column(column_);
  return out;
}

std::string LineView::finish() {
  std::string out;
  for (std::size_t i = row_; i + 1 < widths_.size(); ++i)
    out += "\n";
  out += "\r\n";
  forget();
  return out;
}

std::string LineView::erase() {
  std::string out = up(row_) + "\r\x1b[J";
  forget();
  return out;
}

void LineView::forget() {
  widths_.clear();
  row_ = 0;
  column_ = 0;
  top_ = 0;
}

}  // namespace ingot
