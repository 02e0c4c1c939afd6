#include "src/chat/prompt_match.hpp"

#include <optional>
#include <string>

#include "src/text/control_tokens.hpp"

namespace ingot {
namespace {

/// Where the next control token is, at or after `from`; the size if there is none.
std::size_t next_control(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                         std::size_t from) {
  while (from < tokens.size() && !tokenizer.is_added(tokens[from]))
    ++from;
  return from;
}

/// Follows the control tokens of a sequence: which of them the chat format put there, and which the
/// model may have written, that is all in an answer but those that end it.
class AnswerPlaces {
 public:
  explicit AnswerPlaces(const Tokenizer& tokenizer)
      : eos_(tokenizer.added_token(control::kEos)),
        user_(tokenizer.added_token(control::kUser)),
        assistant_(tokenizer.added_token(control::kAssistant)),
        think_start_(tokenizer.added_token(control::kThinkStart)),
        think_end_(tokenizer.added_token(control::kThinkEnd)) {}

  /// @param at_once  no text stands between it and the control token before
  bool may_be_written(TokenId token, bool at_once) const {
    const bool mode = begins_ && at_once && (token == think_start_ || token == think_end_);
    return in_answer_ && !mode && token != eos_ && token != user_;
  }
  /// One that is ours, or counts as such.
  void pass(TokenId token) {
    if (token == eos_ || token == user_) in_answer_ = false;
    // Behind it there is the one that says whether the model thinks.
    begins_ = !in_answer_ && token == assistant_;
    if (begins_) in_answer_ = true;
  }

 private:
  std::optional<TokenId> eos_, user_, assistant_, think_start_, think_end_;
  bool in_answer_ = false;
  bool begins_ = false;
};

}  // namespace

PromptMatch match_prompt(const Tokenizer& tokenizer, std::span<const TokenId> held,
                         std::span<const TokenId> prompt) {
  PromptMatch best;
  AnswerPlaces places(tokenizer);
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < held.size()) {
    const std::size_t prompt_end = next_control(tokenizer, prompt, j);
    const std::string asked = tokenizer.decode(prompt.subspan(j, prompt_end - j));
    std::size_t held_end = next_control(tokenizer, held, i);
    // What the model wrote is mended where it becomes text: half a character at a cut, mostly.
    std::string wrote;
    Utf8Stream characters;
    const auto read = [&](std::size_t from) {
      wrote += characters.push(tokenizer.decode(held.subspan(from, held_end - from)));
    };
    const auto agree = [&] {
      const std::string rest = Utf8Stream(characters).finish();
      return wrote.size() + rest.size() == asked.size() && wrote + rest == asked;
    };
    read(i);
    while (held_end < held.size() && wrote.size() <= asked.size() &&
           places.may_be_written(held[held_end], held_end == i)) {
      // The prompt may have it as a control token, too: the end of thinking, a call.
      const bool both = prompt_end < prompt.size() && held[held_end] == prompt[prompt_end];
      if (both && agree()) break;
      const std::size_t from = held_end;
      held_end = next_control(tokenizer, held, held_end + 1);
      read(from);
    }
    if (!agree()) break;
    if (prompt_end >= prompt.size()) break;  // nothing would be left to feed
    best = {held_end, prompt_end};
    if (held_end >= held.size() || held[held_end] != prompt[prompt_end]) break;
    places.pass(held[held_end]);
    i = held_end + 1;
    j = prompt_end + 1;
    if (j >= prompt.size()) break;
    best = {i, j};
  }
  return best;
}

}  // namespace ingot
