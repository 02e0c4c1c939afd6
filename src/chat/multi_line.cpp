#include "src/chat/multi_line.hpp"

#include <utility>

namespace ingot {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

bool ends_in_open_backslash(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\\');
  const std::size_t count = text.size() - (last == std::string_view::npos ? 0 : last + 1);
  return count % 2 == 1;
}

}  // namespace

Continuation continuation_of(std::string_view text, bool start_typed, bool end_typed) {
  if (start_typed && text.starts_with(kQuotes)) {
    const bool closed = end_typed && text.size() >= 2 * kQuotes.size() && text.ends_with(kQuotes);
    return closed ? Continuation::none : Continuation::quoted;
  }
  return end_typed && ends_in_open_backslash(text) ? Continuation::backslash : Continuation::none;
}

TypedMessage message_of(std::string text, bool start_typed) {
  if (!start_typed || !text.starts_with(kQuotes)) {
    const bool lines = text.find('\n') != std::string::npos;
    return {std::move(text), lines};
  }
  std::string_view inside = std::string_view(text).substr(kQuotes.size());
  if (inside.ends_with(kQuotes)) inside.remove_suffix(kQuotes.size());
  if (inside.starts_with('\n')) inside.remove_prefix(1);
  if (inside.ends_with('\n')) inside.remove_suffix(1);
  return {std::string(inside), true};
}

std::optional<TypedMessage> LineJoiner::push(std::string line) {
  if (begun_) {
    text_ += line;
  } else {
    text_ = std::move(line);
  }
  begun_ = true;
  switch (continuation_of(text_)) {
    case Continuation::none:
      break;
    case Continuation::quoted:
      text_ += '\n';
      return std::nullopt;
    case Continuation::backslash:
      text_.back() = '\n';
      return std::nullopt;
  }
  return finish();
}

std::optional<TypedMessage> LineJoiner::finish() {
  if (!std::exchange(begun_, false)) return std::nullopt;
  return message_of(std::exchange(text_, {}));
}

}  // namespace ingot
