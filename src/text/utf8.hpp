#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/utf8.hpp"

namespace ingot {

/// U+FFFD, which stands for bytes that are not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// `text` itself where it is UTF-8, else a copy in `storage` with each invalid part written as
/// U+FFFD (Python's errors='replace').
std::string_view mend_utf8(std::string_view text, std::string& storage);

/// The beginning of a UTF-8 text, of at most `max_bytes` and never half a character.
std::string_view cut_utf8(std::string_view text, std::size_t max_bytes);

}  // namespace ingot
