#include "runtime/base/printable.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

#include "runtime/base/utf8.hpp"

namespace ingot {
namespace {

struct Range {
  char32_t first, last;
};

/// Beyond ASCII. Joiners (U+200C, U+200D) are not among them: words and emoji need them.
constexpr Range kSpelledOut[] = {
    {0x0080, 0x009F},    // C1 controls: some terminals obey them
    {0x061C, 0x061C},    // Arabic letter mark
    {0x200B, 0x200B},    // zero width space
    {0x200E, 0x200F},    // left-to-right and right-to-left marks
    {0x2028, 0x202E},    // separators of lines and paragraphs; embeddings and overrides
    {0x2060, 0x206F},    // word joiner, invisible operators, isolates
    {0xFEFF, 0xFEFF},    // byte-order mark
    {0xFFF9, 0xFFFB},    // interlinear annotation
    {0xE0000, 0xE007F},  // tags
};

/// The code point of a whole character of UTF-8.
char32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  char32_t code = lead & (0x7Fu >> character.size());
  for (const char c : character.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return code;
}

bool is_spelled_out(char32_t code) {
  if (code < 0x80) return code < 0x20 || code == 0x7F;
  for (const Range& range : kSpelledOut) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

template <class KeepLineFeed>
std::string spell_out(std::string_view text, const KeepLineFeed& keep_line_feed) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Part part = next_utf8(text, at);
    const std::string_view bytes = text.substr(at, part.bytes);
    at += part.bytes;
    const bool whole = part.kind == Utf8Part::Kind::character;
    const char32_t code = whole ? code_point(bytes) : 0;
    if (whole && (!is_spelled_out(code) || (code == '\n' && keep_line_feed(at)))) {
      out += bytes;
    } else if (whole && code >= 0x80) {
      fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", static_cast<unsigned>(code));
    } else {
      for (const char c : bytes)
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return spell_out(text, [](std::size_t) { return false; });
}

std::string printable_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t at = 0; at < json.size();) {
    const Utf8Part part = next_utf8(json, at);
    const std::string_view bytes = json.substr(at, part.bytes);
    at += part.bytes;
    const bool whole = part.kind == Utf8Part::Kind::character;
    const char32_t code = whole ? code_point(bytes) : 0;
    // What is below the blank is spelled out inside of strings already, or is white space.
    if (!whole || code < 0x20 || !is_spelled_out(code)) {
      out += bytes;
    } else if (code < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(code));
    } else {
      const unsigned above = static_cast<unsigned>(code) - 0x10000;
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10),
                     0xDC00 + (above & 0x3FF));
    }
  }
  return out;
}

std::string printable_message(std::string_view text) {
  return spell_out(text, [&](std::size_t behind) { return text.substr(behind, 2) == "  "; });
}

}  // namespace ingot
