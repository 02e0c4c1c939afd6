#pragma once

#include <cstddef>
#include <string_view>

namespace ingot {

/// The next part of a byte string read as UTF-8.
struct Utf8Part {
  enum class Kind {
    character,  ///< a whole character
    invalid,    ///< a maximal part that cannot begin any character: one U+FFFD
    cut,        ///< the string ends inside what may still become a character
  };
  Kind kind;
  std::size_t bytes;  ///< at least 1
};

/// @param at less than text.size().
/// Source: Unicode 15, table 3-7 and section 3.9 "U+FFFD substitution of maximal subparts".
Utf8Part next_utf8(std::string_view text, std::size_t at);

/// The length of the longest prefix that is UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);
inline bool is_utf8(std::string_view text) {
  return valid_utf8_prefix(text) == text.size();
}

}  // namespace ingot
