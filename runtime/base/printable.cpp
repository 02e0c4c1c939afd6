#include "runtime/base/printable.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "runtime/base/utf8.hpp"

namespace ingot {
namespace {

struct Range {
  std::int32_t first, last;
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
std::int32_t code_point(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  std::int32_t code = lead & (0x7F >> character.size());
  for (const char c : character.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code;
}

bool is_spelled_out(std::int32_t code) {
  if (code < 0x80) return code < 0x20 || code == 0x7F;
  for (const Range& range : kSpelledOut) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

/// A text part by part: a whole character, or bytes that are none.
/// @param add  (bytes, code point or -1, place behind them): appends what is shown for them
template <class Add>
void each_part(std::string_view text, const Add& add) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Part part = next_utf8(text, at);
    const std::string_view bytes = text.substr(at, part.bytes);
    at += part.bytes;
    const bool whole = part.kind == Utf8Part::Kind::character;
    add(bytes, whole ? code_point(bytes) : -1, at);
  }
}

template <class KeepLineFeed>
std::string spell_out(std::string_view text, const KeepLineFeed& keep_line_feed) {
  std::string out;
  out.reserve(text.size());
  each_part(text, [&](std::string_view bytes, std::int32_t code, std::size_t behind) {
    if (code >= 0 && (!is_spelled_out(code) || (code == '\n' && keep_line_feed(behind)))) {
      out += bytes;
    } else if (code >= 0x80) {
      fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", code);
    } else {
      for (const char c : bytes)
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  });
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return spell_out(text, [](std::size_t) { return false; });
}

std::string printable_message(std::string_view text) {
  return spell_out(text, [&](std::size_t behind) { return text.substr(behind, 2) == "  "; });
}

std::string printable_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  each_part(json, [&](std::string_view bytes, std::int32_t code, std::size_t) {
    // What is below the blank is spelled out inside of strings already, or is white space.
    if (code < 0x20 || !is_spelled_out(code)) {
      out += bytes;
    } else if (code < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}",
                     0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
    }
  });
  return out;
}

}  // namespace ingot
