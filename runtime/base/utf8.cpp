#include "runtime/base/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace ingot {
namespace {

/// How many bytes a character with this lead byte has, and what its second byte may be.
struct Lead {
  std::size_t bytes;  ///< 0: no character begins with this byte
  std::uint8_t low, high;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Part next_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[at + i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.bytes == 0) return {Utf8Part::Kind::invalid, 1};
  const std::size_t left = text.size() - at;
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    if (i == left) return {Utf8Part::Kind::cut, i};
    const std::uint8_t low = i == 1 ? lead.low : 0x80;
    const std::uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8Part::Kind::invalid, i};
  }
  return {Utf8Part::Kind::character, lead.bytes};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight;  // runs of ASCII, eight bytes at a time
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Utf8Part part = next_utf8(text, at);
    if (part.kind != Utf8Part::Kind::character) break;
    at += part.bytes;
  }
  return at;
}

}  // namespace ingot
