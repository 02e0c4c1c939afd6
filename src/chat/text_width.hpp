#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ingot {

/// Where the user-perceived character (grapheme cluster) that begins at `at` ends; at least one
/// byte further, at most text.size(). Bytes that are not UTF-8 stand alone. Does not ask the
/// locale. Source: Unicode, UAX 29, as utf8proc has it.
std::size_t next_grapheme(std::string_view text, std::size_t at);

/// Where the character before `at` begins. `at` is a border, or inside of what it goes back over.
std::size_t previous_grapheme(std::string_view text, std::size_t at);

/// Columns that one such character takes on a terminal: 0, 1 or 2. A sequence (emoji with joiners,
/// letters with marks) is as wide as its widest part.
int grapheme_width(std::string_view grapheme);

/// Columns of a text of one line. Control characters count as the one picture that stands for them.
int display_width(std::string_view text);

/// The beginning of a text of one line that fits so many columns.
std::string_view cut_to_width(std::string_view text, int columns);

}  // namespace ingot
