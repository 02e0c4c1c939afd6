#include "src/text/text_check.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/log.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

using namespace std::string_view_literals;

struct Mark {
  std::string_view bytes;
  std::string_view encoding;
};
// UTF-32's before UTF-16's, with which one of them begins.
constexpr Mark kMarks[] = {{"\xFF\xFE\0\0"sv, "UTF-32"},
                           {"\0\0\xFE\xFF"sv, "UTF-32"},
                           {"\xFF\xFE"sv, "UTF-16"},
                           {"\xFE\xFF"sv, "UTF-16"}};

/// The encoding whose zeros these are; empty: none. One of four code units must have them, so that
/// a line that went wrong in a good file is none, and only on one side.
std::string_view utf16_by_its_zeros(std::string_view begin) {
  const std::size_t units = begin.size() / 2;
  std::size_t zeros[2] = {0, 0};
  for (std::size_t i = 0; i < 2 * units; ++i)
    zeros[i % 2] += begin[i] == '\0' ? 1 : 0;
  const auto is_side = [&](std::size_t side) {
    return zeros[side] >= 2 && zeros[1 - side] == 0 && 4 * zeros[side] >= units;
  };
  if (is_side(1)) return "UTF-16LE";
  return is_side(0) ? "UTF-16BE" : "";
}

Unexpected no_text(std::string_view name, std::size_t at, std::string_view why) {
  return fail(ErrorCode::invalid_argument, fmt::format("{}: byte {} is {}", name, at, why));
}

}  // namespace

Result<void> check_not_utf16(std::string_view begin, std::string_view name) {
  begin = begin.substr(0, kTextBeginBytes);
  for (const Mark& mark : kMarks) {
    if (!begin.starts_with(mark.bytes)) continue;
    return fail(ErrorCode::invalid_argument,
                fmt::format("reading {}: it is {}, not UTF-8; convert it (iconv -f {} -t UTF-8)",
                            name, mark.encoding, mark.encoding));
  }
  const std::string_view encoding = utf16_by_its_zeros(begin);
  if (encoding.empty()) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("reading {}: it is UTF-16 without a byte-order mark, not UTF-8; convert "
                          "it (iconv -f {} -t UTF-8)",
                          name, encoding));
}

Result<void> check_no_nul(std::string_view bytes, std::string_view name) {
  const std::size_t at = bytes.find('\0');
  if (at == std::string_view::npos) return {};
  return no_text(name, at,
                 "NUL, which no text holds; if it is UTF-16, convert it (iconv -f UTF-16LE -t "
                 "UTF-8, or -f UTF-16BE)");
}

Result<void> check_plain_text(std::string_view text, std::string_view name) {
  if (auto checked = check_no_nul(text, name); !checked) return checked;
  const std::size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return {};
  return no_text(
      name, valid,
      fmt::format("0x{:02X}, which is not UTF-8 there; convert it to UTF-8 (iconv -f ITS-"
                  "ENCODING -t UTF-8)",
                  static_cast<unsigned char>(text[valid])));
}

void TextFaults::add(std::string_view part, std::int64_t at) {
  const auto found = [&](std::size_t place) {
    if (count++ == 0) first = at + static_cast<std::int64_t>(place);
  };
  for (std::size_t place = 0; place < part.size();) {
    const std::size_t valid = valid_utf8_prefix(part.substr(place));
    const std::size_t end = place + valid;
    const std::string_view upto = part.substr(0, end);
    for (std::size_t nul = upto.find('\0', place); nul < end; nul = upto.find('\0', nul + 1))
      found(nul);
    if (end == part.size()) return;
    found(end);
    place = end + next_utf8(part, end).bytes;
  }
}

void warn_of_faults(std::string_view name, const TextFaults& faults) {
  if (faults.count == 0) return;
  log::warn(
      "reading {}: {} place{} of it {} no text, the first at byte {}: NUL bytes are encoded as "
      "U+0000, and bytes that are not UTF-8 as U+FFFD",
      name, faults.count, faults.count == 1 ? "" : "s", faults.count == 1 ? "is" : "are",
      faults.first);
}

}  // namespace ingot
