#include "src/chat/quoted_text.hpp"

#include <algorithm>

namespace ingot {
namespace {

bool is_quote(char c) {
  return c == '"' || c == '\'';
}

/// Where the quote at the beginning of a text is closed; npos: nowhere.
std::size_t closing_quote(std::string_view text) {
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == text[0]) return at;
    if (text[0] == '"' && text[at] == '\\') ++at;
  }
  return std::string_view::npos;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// What a backslash and the text behind it stand for, and how much of that text it takes.
struct Escape {
  char meaning = '\\';
  std::size_t length = 0;
};
Escape escape_of(std::string_view behind) {
  if (behind.empty()) return {};
  switch (behind[0]) {
    case '"':
    case '\\':
      return {behind[0], 1};
    case 'n':
      return {'\n', 1};
    case 't':
      return {'\t', 1};
    case 'x':
      break;
    default:
      return {};
  }
  if (behind.size() < 3) return {};
  const int high = hex_digit(behind[1]), low = hex_digit(behind[2]);
  if (high < 0 || low < 0) return {};
  return {static_cast<char>(16 * high + low), 3};
}

}  // namespace

bool is_quoted(std::string_view text) {
  return text.size() >= 2 && is_quote(text[0]) && closing_quote(text) == text.size() - 1;
}

std::string unquoted(std::string_view text) {
  if (!is_quoted(text)) return std::string(text);
  const std::string_view inside = text.substr(1, text.size() - 2);
  if (text[0] == '\'') return std::string(inside);
  std::string out;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] != '\\') {
      out += inside[i];
      continue;
    }
    const Escape escape = escape_of(inside.substr(i + 1));
    out += escape.meaning;
    i += escape.length;
  }
  return out;
}

std::optional<std::vector<std::string>> quoted_list(std::string_view text) {
  std::vector<std::string> texts;
  while (!text.empty()) {
    if (!is_quote(text[0])) return std::nullopt;
    const std::size_t end = closing_quote(text);
    if (end == std::string_view::npos) return std::nullopt;
    texts.push_back(unquoted(text.substr(0, end + 1)));
    text.remove_prefix(end + 1);
    const std::size_t blanks = std::min(text.find_first_not_of(" \t"), text.size());
    if (blanks == 0 && !text.empty()) return std::nullopt;
    text.remove_prefix(blanks);
  }
  if (texts.empty()) return std::nullopt;
  return texts;
}

}  // namespace ingot
