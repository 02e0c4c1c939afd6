#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// How much of its beginning tells what a file is.
inline constexpr std::size_t kTextBeginBytes = std::size_t{64} << 10;

/// Refuses what is UTF-16 or UTF-32 by how it begins: with their byte-order mark, or, without one,
/// with the zeros that ASCII characters have in UTF-16. The one place that decides it, for all that
/// reads text.
/// @param begin  up to kTextBeginBytes are looked at
/// @param name   the file, for the message
/// Error: invalid_argument, with the iconv that helps.
[[nodiscard]] Result<void> check_not_utf16(std::string_view begin, std::string_view name);

/// Refuses what holds a NUL byte, as UTF-16 does and text does not.
/// @param name  the text, for the message, which names the first such byte
/// Error: invalid_argument.
[[nodiscard]] Result<void> check_no_nul(std::string_view bytes, std::string_view name);

/// Refuses what holds a NUL byte, or bytes that are not UTF-8. Error: as above.
[[nodiscard]] Result<void> check_plain_text(std::string_view text, std::string_view name);

/// Places of a text that are NUL or not UTF-8 (of these, those that become one U+FFFD each).
struct TextFaults {
  std::int64_t count = 0;
  std::int64_t first = -1;  ///< where the first of them is, in bytes

  /// @param at  where the part begins in the text
  void add(std::string_view part, std::int64_t at);
};

/// Says once, as a warning, what in a text is encoded although it is no text.
void warn_of_faults(std::string_view name, const TextFaults& faults);

}  // namespace ingot
