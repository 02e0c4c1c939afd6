#include "src/chat/text_width.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "src/text/utf8.hpp"

namespace ingot {
namespace {

constexpr utf8proc_int32_t kEmojiPresentation = 0xFE0F;
/// A cluster of more is cut, so that no text makes one step of the cursor cost its whole length.
constexpr std::size_t kMostClusterBytes = 128;
/// How far back a border is looked for before the search begins at a plain character.
constexpr std::size_t kLookBack = 160;

struct CodePoint {
  utf8proc_int32_t value;
  std::size_t bytes;
  bool valid;
};

CodePoint code_point(std::string_view text, std::size_t at) {
  const Utf8Part part = next_utf8(text, at);
  if (part.kind != Utf8Part::Kind::character) return {0xFFFD, part.bytes, false};
  utf8proc_int32_t value = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                   static_cast<utf8proc_ssize_t>(part.bytes), &value);
  return {value, part.bytes, true};
}

bool is_plain(char byte) {
  return static_cast<unsigned char>(byte) < 0x80;
}

}  // namespace

std::size_t next_grapheme(std::string_view text, std::size_t at) {
  CodePoint last = code_point(text, at);
  std::size_t end = at + last.bytes;
  if (!last.valid) return end;
  // Between two of ASCII there is always a border, but for CR LF, which never gets here.
  if (is_plain(text[at]) && (end >= text.size() || is_plain(text[end]))) return end;
  utf8proc_int32_t state = 0;
  while (end < text.size() && end - at < kMostClusterBytes) {
    const CodePoint next = code_point(text, end);
    if (!next.valid || utf8proc_grapheme_break_stateful(last.value, next.value, &state)) break;
    end += next.bytes;
    last = next;
  }
  return end;
}

std::size_t previous_grapheme(std::string_view text, std::size_t at) {
  if (at == 0) return 0;
  const std::size_t furthest = at > kLookBack ? at - kLookBack : 0;
  std::size_t begin = at - 1;
  // From a plain character on, clusters can be counted forwards.
  while (begin > furthest && !(is_plain(text[begin]) && is_plain(text[begin - 1])))
    --begin;
  while (begin > furthest && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80)
    --begin;
  std::size_t border = begin;
  while (border < at) {
    begin = border;
    border = next_grapheme(text, border);
  }
  return begin;
}

int grapheme_width(std::string_view grapheme) {
  int width = 0;
  for (std::size_t at = 0; at < grapheme.size();) {
    const CodePoint point = code_point(grapheme, at);
    if (point.value < 0x20 || (point.value >= 0x7F && point.value < 0xA0)) {
      width = std::max(width, 1);
    } else if (point.value == kEmojiPresentation && at > 0) {
      width = 2;
    } else {
      width = std::max(width, point.valid ? utf8proc_charwidth(point.value) : 1);
    }
    at += point.bytes;
  }
  return width;
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_grapheme(text, at);
    width += grapheme_width(text.substr(at, end - at));
    at = end;
  }
  return width;
}

std::string_view cut_to_width(std::string_view text, int columns) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = next_grapheme(text, at);
    width += grapheme_width(text.substr(at, end - at));
    if (width > columns) return text.substr(0, at);
    at = end;
  }
  return text;
}

}  // namespace ingot
