#pragma once

#include <string>
#include <string_view>

namespace ingot {

/// What the model wrote, made safe for a terminal: control characters that could move the cursor,
/// set colours or send answers back are shown as pictures (␛), what is not UTF-8 as U+FFFD. Line
/// feeds and tabs stay.
std::string for_terminal(std::string_view text);

}  // namespace ingot
