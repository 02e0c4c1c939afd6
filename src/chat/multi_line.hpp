#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

/// What a user handed over as one message.
struct TypedMessage {
  std::string text;
  bool literal = false;  ///< a message whatever it looks like: it was quoted, or pasted as lines

  bool operator==(const TypedMessage&) const = default;
};

/// How a message of several lines is typed:
/// - `"""` at its start: everything up to a `"""` that ends a line, line breaks included, as it is;
///   a line break next to either mark is not part of the message;
/// - a backslash at the end of a line: the message goes on, with a line break instead of it. Two
///   backslashes there (or any even number) are ordinary text.
enum class Continuation { none, quoted, backslash };

/// Whether a text wants another line. What was pasted means itself: where the first three
/// characters or the last ones were, the marks are not looked for there.
Continuation continuation_of(std::string_view text, bool start_typed = true, bool end_typed = true);

/// The message that a complete text stands for.
TypedMessage message_of(std::string text, bool start_typed = true);

/// Puts messages together from the lines of a pipe, by the same rules.
class LineJoiner {
 public:
  /// The message, if this line completes one.
  std::optional<TypedMessage> push(std::string line);
  /// What the end of input leaves: the message as far as it came.
  std::optional<TypedMessage> finish();
  bool empty() const { return !begun_; }
  /// Of the message that has begun.
  std::size_t bytes() const { return text_.size(); }

 private:
  std::string text_;
  bool begun_ = false;
};

}  // namespace ingot
