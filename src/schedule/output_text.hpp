#pragma once

#include <span>
#include <string>

#include "src/sampler/stop_matcher.hpp"
#include "src/text/stream_parser.hpp"
#include "src/text/tokenizer.hpp"
#include "src/token.hpp"

namespace ingot {

/// The text of one answer, made from its tokens: bytes -> whole characters -> stop strings ->
/// thinking, answer and tool calls. Stop strings are looked for in the answer alone, neither in the
/// thinking nor in tool calls. One thread at a time; the tokenizer must outlive it.
class OutputText {
 public:
  /// @param thinking whether the prompt ended in <think>
  /// @param plain     all of it is answer: no thinking, no tool calls
  OutputText(const Tokenizer& tokenizer, std::span<const std::string> stops, bool thinking,
             bool plain = false);

  /// Text that this token released.
  OutputDelta push(TokenId token);
  /// Releases what was held back; call once, at the end of the output.
  OutputDelta finish();

  /// A stop string was found: nothing more will come.
  bool stopped() const { return stops_.matched(); }
  bool is_thinking() const { return parser_.is_thinking(); }
  /// Why a tool-call block was not understood; empty while all is well.
  const std::string& error() const { return parser_.error(); }

 private:
  void route(std::string_view text, OutputDelta& delta);

  const Tokenizer& tokenizer_;
  Utf8Stream characters_;
  StopMatcher stops_;
  StreamParser parser_;
  bool plain_;
};

/// Appends `more` to `delta`.
void append(OutputDelta& delta, OutputDelta more);

}  // namespace ingot
