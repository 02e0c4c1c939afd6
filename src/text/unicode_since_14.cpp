#include "src/text/unicode_since_14.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ingot {
namespace {

enum class Category { Lu, Ll, Lm, Lo, Mn, Mc, Nd, No, Po, Pd, Sm, So, Cf };

/// An older character of each category, of three bytes and of four.
struct StandIn {
  std::string_view three, four;
};
constexpr std::array<StandIn, 13> kStandIns = {{
    {"\u1E9E", "\U00010400"},  // Lu
    {"\u1E01", "\U00010428"},  // Ll
    {"\uA015", "\U00016F93"},  // Lm
    {"\uA000", "\U00010000"},  // Lo
    {"\u20D0", "\U000101FD"},  // Mn
    {"\u0903", "\U00011000"},  // Mc
    {"\u0966", "\U000104A0"},  // Nd
    {"\u2460", "\U00010107"},  // No
    {"\u2016", "\U00010100"},  // Po
    {"\u2010", "\U00010EAD"},  // Pd
    {"\u2200", "\U0001D6C1"},  // Sm
    {"\u2300", "\U00010137"},  // So
    {"\u200B", "\U000110BD"},  // Cf
}};

struct Range {
  std::uint32_t first, last;
  Category category;
};
constexpr Range kRanges[] = {
#include "src/text/unicode_since_14.inc"
};

/// Which blocks of 256 characters a range touches: most text is decided by this alone.
constexpr auto kBlocks = [] {
  std::array<bool, 0x1100> blocks{};
  for (const Range& range : kRanges) {
    for (std::uint32_t block = range.first >> 8; block <= range.last >> 8; ++block) {
      blocks[block] = true;
    }
  }
  return blocks;
}();

const Range* range_of(std::uint32_t point) {
  if (!kBlocks[point >> 8]) return nullptr;
  const Range* range =
      std::partition_point(std::begin(kRanges), std::end(kRanges),
                           [&](const Range& candidate) { return candidate.last < point; });
  return range != std::end(kRanges) && range->first <= point ? range : nullptr;
}

}  // namespace

std::string_view with_unicode_14_categories(std::string_view text, std::string& storage) {
  bool copied = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[at + i]); };
    // The ranges begin beyond the characters of two bytes.
    const std::uint8_t lead = byte(0);
    if (lead < 0xE0) {
      at += lead < 0x80 ? 1 : 2;
      continue;
    }
    const std::size_t bytes = lead < 0xF0 ? 3 : 4;
    std::uint32_t point = lead & (bytes == 3 ? 0x0Fu : 0x07u);
    for (std::size_t i = 1; i < bytes; ++i)
      point = point << 6 | (byte(i) & 0x3Fu);
    if (const Range* range = range_of(point)) {
      if (!copied) storage = text;
      copied = true;
      const StandIn& stand_in = kStandIns[static_cast<std::size_t>(range->category)];
      storage.replace(at, bytes, bytes == 3 ? stand_in.three : stand_in.four);
    }
    at += bytes;
  }
  return copied ? std::string_view(storage) : text;
}

}  // namespace ingot
