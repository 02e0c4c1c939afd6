#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// Whether the first character is a quote, " or ', that the last one closes, and none in between
/// does. In double quotes a backslash keeps the character behind it from closing them.
bool is_quoted(std::string_view text);

/// A value as a user typed it. Quotes around all of it are taken off: it is the text in them,
/// whatever it looks like. In double quotes \", \\, \n, \t and \xHH (a byte) stand for what they do
/// where settings are shown; any other backslash is one. Bytes may make what is no UTF-8.
std::string unquoted(std::string_view text);

/// The texts of one or more quoted ones with blanks between them. nullopt where that is not what
/// all of it is.
std::optional<std::vector<std::string>> quoted_list(std::string_view text);

}  // namespace ingot
