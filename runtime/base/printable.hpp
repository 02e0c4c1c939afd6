#pragma once

#include <string>
#include <string_view>

namespace ingot {

/// Outside text (a file's name, a key, an argument) made fit to be shown on one line: what could
/// steer a terminal or change how a line reads is spelled out. Control characters and bytes that
/// are not UTF-8 become \xNN, those beyond ASCII (C1 controls, marks of writing direction,
/// separators of lines, invisible tags) \u{NNNN}. All else stays as it is.
std::string printable(std::string_view text);

/// The same of a whole message, which may list things on lines of their own: a line feed with two
/// blanks behind it stays. No outside text can begin a line at its left edge.
std::string printable_message(std::string_view text);

/// The same of a JSON document, in which it stays the same document: \uNNNN.
std::string printable_json(std::string_view json);

}  // namespace ingot
