#include "src/schedule/output_text.hpp"

#include <iterator>
#include <utility>

namespace ingot {

void append(OutputDelta& delta, OutputDelta more) {
  delta.reasoning += more.reasoning;
  delta.content += more.content;
  delta.tool_calls.insert(delta.tool_calls.end(), std::make_move_iterator(more.tool_calls.begin()),
                          std::make_move_iterator(more.tool_calls.end()));
}

OutputText::OutputText(const Tokenizer& tokenizer, std::span<const std::string> stops,
                       bool thinking, bool plain)
    : tokenizer_(tokenizer), stops_(stops), parser_(thinking && !plain), plain_(plain) {}

void OutputText::route(std::string_view text, OutputDelta& delta) {
  if (plain_) {
    delta.content += stops_.push(text);
    return;
  }
  // While the model thinks, its text is handed on byte by byte, so that the first byte of the
  // answer is the first one that the stop strings see.
  while (!text.empty() && parser_.is_thinking()) {
    append(delta, parser_.push(text.substr(0, 1)));
    text.remove_prefix(1);
  }
  if (text.empty()) return;
  if (parser_.in_tool_calls()) {
    append(delta, parser_.push(text));
    return;
  }
  append(delta, parser_.push(stops_.push(text)));
  // What is held back here belongs to the tool calls if they have just begun.
  if (parser_.in_tool_calls() && !stops_.matched()) append(delta, parser_.push(stops_.flush()));
}

OutputDelta OutputText::push(TokenId token) {
  OutputDelta delta;
  route(characters_.push(tokenizer_.bytes(token)), delta);
  return delta;
}

OutputDelta OutputText::finish() {
  OutputDelta delta;
  route(characters_.finish(), delta);
  if (plain_) {
    delta.content += stops_.flush();
    return delta;
  }
  append(delta, parser_.push(stops_.flush()));
  append(delta, parser_.finish());
  return delta;
}

}  // namespace ingot
