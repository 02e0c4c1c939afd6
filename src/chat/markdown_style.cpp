#include "src/chat/markdown_style.hpp"

#include <algorithm>

namespace ingot {
namespace {

constexpr std::string_view kFenceColour = "\x1b[2m";
constexpr std::string_view kCodeColour = "\x1b[36m";
constexpr std::string_view kNormal = "\x1b[0m";
constexpr std::size_t kMostIndent = 3;
constexpr std::size_t kShortestFence = 3;

/// A line's blanks in front and the run of fence characters behind them.
struct Fence {
  std::size_t indent = 0;
  char mark = 0;
  std::size_t size = 0;
};

Fence fence_of(std::string_view line) {
  Fence fence;
  fence.indent = std::min(line.find_first_not_of(' '), line.size());
  if (fence.indent == line.size() || (line[fence.indent] != '`' && line[fence.indent] != '~')) {
    return fence;
  }
  fence.mark = line[fence.indent];
  const std::size_t end = std::min(line.find_first_not_of(fence.mark, fence.indent), line.size());
  fence.size = end - fence.indent;
  return fence;
}

}  // namespace

void MarkdownStyle::decide(std::string& out) {
  const Fence fence = fence_of(held_);
  const std::size_t wanted = in_code_ ? fence_size_ : kShortestFence;
  const bool right_mark = fence.mark != 0 && (!in_code_ || fence.mark == fence_);
  if (fence.indent <= kMostIndent && right_mark && fence.size >= wanted) {
    line_ = Line::fence;
    fence_line_ = held_;
    out += kFenceColour;
  } else if (fence.indent <= kMostIndent && fence.indent + fence.size == held_.size() &&
             (fence.mark == 0 || right_mark)) {
    return;  // it may still become one
  } else {
    line_ = in_code_ ? Line::code : Line::text;
    if (in_code_) out += kCodeColour;
  }
  out += held_;
  held_.clear();
}

void MarkdownStyle::end_line(std::string& out) {
  if (line_ == Line::undecided && in_code_ && !held_.empty()) {
    out += kCodeColour;
    line_ = Line::code;
  }
  out += held_;
  if (line_ == Line::code || line_ == Line::fence) out += kNormal;
  if (line_ == Line::fence) {
    const Fence fence = fence_of(fence_line_);
    const std::string_view info = std::string_view(fence_line_).substr(fence.indent + fence.size);
    if (!in_code_) {
      // Backticks behind the opening ones make it a line of text with code in it.
      if (fence.mark == '~' || info.find('`') == std::string_view::npos) {
        in_code_ = true;
        fence_ = fence.mark;
        fence_size_ = fence.size;
      }
    } else if (info.find_first_not_of(" \t\r") == std::string_view::npos) {
      in_code_ = false;
    }
  }
  held_.clear();
  fence_line_.clear();
  line_ = Line::undecided;
}

void MarkdownStyle::take(char c, std::string& out) {
  if (c == '\n') {
    end_line(out);
    out += c;
  } else if (line_ == Line::undecided) {
    held_ += c;
    decide(out);
  } else {
    out += c;
    if (line_ == Line::fence) fence_line_ += c;
  }
}

std::string MarkdownStyle::push(std::string_view text) {
  std::string out;
  for (const char c : text)
    take(c, out);
  return out;
}

std::string MarkdownStyle::finish() {
  std::string out;
  end_line(out);
  in_code_ = false;
  return out;
}

}  // namespace ingot
