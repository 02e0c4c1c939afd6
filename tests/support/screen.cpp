#include "tests/support/screen.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "src/chat/text_width.hpp"
#include "src/text/utf8.hpp"

namespace ingot::test {
namespace {

/// What a style looks like in a picture.
std::string_view svg_style(int style) {
  switch (style) {
    case 2:
      return " fill=\"#808a94\"";
    case 36:
      return " fill=\"#7fd0d8\"";
    default:
      return "";
  }
}

std::string svg_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string Screen::joined(const Row& row) {
  std::string line;
  for (const Cell& cell : row)
    line += cell.text;
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

Screen::Screen(int columns, int rows) : columns_(columns), rows_(rows) {
  grid_.assign(static_cast<std::size_t>(rows), Row(static_cast<std::size_t>(columns)));
}

void Screen::resize(int columns, int rows) {
  const auto width = static_cast<std::size_t>(columns);
  std::vector<Row> wrapped;
  int row = 0;
  int last = 0;
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    Row cells = grid_[i];
    while (!cells.empty() && cells.back().is_blank())
      cells.pop_back();
    if (static_cast<int>(i) == row_) row = static_cast<int>(wrapped.size()) + column_ / columns;
    if (!cells.empty()) last = static_cast<int>(wrapped.size() + (cells.size() - 1) / width);
    for (std::size_t at = 0; at == 0 || at < cells.size(); at += width) {
      Row part(cells.begin() + static_cast<std::ptrdiff_t>(at),
               cells.begin() + static_cast<std::ptrdiff_t>(std::min(at + width, cells.size())));
      part.resize(width);
      wrapped.push_back(std::move(part));
    }
  }
  // Empty rows at the end go first, then those at the top.
  wrapped.resize(static_cast<std::size_t>(std::max(last, row)) + 1);
  while (static_cast<int>(wrapped.size()) > rows) {
    gone_.push_back(wrapped.front());
    wrapped.erase(wrapped.begin());
    --row;
  }
  wrapped.resize(static_cast<std::size_t>(rows), Row(width));
  grid_ = std::move(wrapped);
  row_ = row;
  column_ %= columns;
  columns_ = columns;
  rows_ = rows;
  wrap_pending_ = false;
}

void Screen::line_feed() {
  wrap_pending_ = false;
  if (++row_ < rows_) return;
  row_ = rows_ - 1;
  gone_.push_back(grid_.front());
  grid_.erase(grid_.begin());
  grid_.push_back(Row(static_cast<std::size_t>(columns_)));
}

void Screen::put(std::string_view grapheme) {
  const int width = grapheme_width(grapheme);
  if (wrap_pending_ || column_ + width > columns_) {
    column_ = 0;
    line_feed();
  }
  Row& row = grid_[static_cast<std::size_t>(row_)];
  row[static_cast<std::size_t>(column_)] = {std::string(grapheme), style_};
  if (width == 2) row[static_cast<std::size_t>(column_) + 1].text.clear();
  column_ += width;
  if (column_ >= columns_) {
    column_ = columns_ - 1;
    wrap_pending_ = true;
  }
}

void Screen::control(std::string_view parameters, char final) {
  const int number = std::max(1, std::atoi(std::string(parameters).c_str()));
  Row& row = grid_[static_cast<std::size_t>(row_)];
  switch (final) {
    case 'm':
      style_ = std::atoi(std::string(parameters).c_str());
      return;
    case 'h':
    case 'l':
      if (parameters != "?2004") break;
      bracketed_paste_ = final == 'h';
      return;
    case 'A':
      row_ = std::max(0, row_ - number);
      wrap_pending_ = false;
      return;
    case 'C':
      column_ = std::min(columns_ - 1, column_ + number);
      wrap_pending_ = false;
      return;
    case 'H':
      row_ = column_ = 0;
      wrap_pending_ = false;
      return;
    case 'K':
      std::fill(row.begin() + column_, row.end(), Cell());
      return;
    case 'J':
      if (parameters == "2") {
        for (Row& each : grid_)
          std::fill(each.begin(), each.end(), Cell());
        return;
      }
      std::fill(row.begin() + column_, row.end(), Cell());
      for (std::size_t i = static_cast<std::size_t>(row_) + 1; i < grid_.size(); ++i)
        std::fill(grid_[i].begin(), grid_[i].end(), Cell());
      return;
    default:
      break;
  }
  throw std::runtime_error("the screen does not know CSI " + std::string(parameters) + final);
}

void Screen::feed(std::string_view bytes) {
  held_ += bytes;
  std::size_t at = 0;
  while (at < held_.size()) {
    const char c = held_[at];
    if (c == '\x1b') {
      if (held_.size() - at < 2) break;
      if (held_[at + 1] != '[') throw std::runtime_error("an escape that is no CSI");
      std::size_t end = at + 2;
      while (end < held_.size() && (held_[end] < 0x40 || held_[end] > 0x7E))
        ++end;
      if (end == held_.size()) break;
      control(std::string_view(held_).substr(at + 2, end - at - 2), held_[end]);
      at = end + 1;
    } else if (c == '\r') {
      column_ = 0;
      wrap_pending_ = false;
      ++at;
    } else if (c == '\n') {
      line_feed();
      ++at;
    } else if (c == '\t') {
      const int stop = std::min(columns_ - 1, (column_ / 8 + 1) * 8);
      column_ = stop;
      ++at;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      throw std::runtime_error("a control character on the screen");
    } else {
      if (next_utf8(held_, at).kind == Utf8Part::Kind::cut) break;
      const std::size_t end = next_grapheme(held_, at);
      put(std::string_view(held_).substr(at, end - at));
      at = end;
    }
  }
  held_.erase(0, at);
}

std::vector<std::string> Screen::lines() const {
  std::vector<std::string> out;
  for (const Row& row : gone_)
    out.push_back(joined(row));
  for (const Row& row : grid_)
    out.push_back(joined(row));
  while (!out.empty() && out.back().empty())
    out.pop_back();
  return out;
}

std::string Screen::text() const {
  std::string out;
  for (const std::string& line : lines())
    out += line + '\n';
  return out;
}

std::string Screen::svg() const {
  constexpr double kWidth = 8.4;
  constexpr int kHeight = 18;
  constexpr int kMargin = 12;
  const int width = static_cast<int>(columns_ * kWidth) + 2 * kMargin;
  const int height = rows_ * kHeight + 2 * kMargin;
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(width) +
                    "\" height=\"" + std::to_string(height) +
                    "\" font-family=\"monospace\" font-size=\"14\" fill=\"#e6e6e6\">\n"
                    "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16191d\"/>\n";
  for (std::size_t r = 0; r < grid_.size(); ++r) {
    const Row& row = grid_[r];
    std::size_t end = row.size();
    while (end > 0 && row[end - 1].is_blank())
      --end;
    for (std::size_t at = 0; at < end;) {
      // A run of one style; its place is said, so that wide characters move nothing behind them.
      std::size_t next = at;
      std::string text;
      while (next < end && row[next].style == row[at].style && (next == at || next % 16 != 0))
        text += row[next++].text;
      out += "<text xml:space=\"preserve\" x=\"" +
             std::to_string(kMargin + static_cast<int>(static_cast<double>(at) * kWidth)) +
             "\" y=\"" + std::to_string(kMargin + 14 + static_cast<int>(r) * kHeight) + "\"" +
             std::string(svg_style(row[at].style)) + ">" + svg_text(text) + "</text>\n";
      at = next;
    }
  }
  return out + "</svg>\n";
}

}  // namespace ingot::test
