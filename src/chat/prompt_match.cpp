#include "src/chat/prompt_match.hpp"

#include <string>

#include "src/text/utf8.hpp"

namespace ingot {
namespace {

/// Where the next control token is, at or after `from`; the size if there is none.
std::size_t next_control(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                         std::size_t from) {
  while (from < tokens.size() && !tokenizer.is_added(tokens[from]))
    ++from;
  return from;
}

}  // namespace

PromptMatch match_prompt(const Tokenizer& tokenizer, std::span<const TokenId> held,
                         std::span<const TokenId> prompt) {
  PromptMatch best;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < held.size()) {
    const std::size_t held_end = next_control(tokenizer, held, i);
    const std::size_t prompt_end = next_control(tokenizer, prompt, j);
    // What the model wrote is mended where it becomes text: half a character at a cut, mostly.
    const std::string wrote = tokenizer.decode(held.subspan(i, held_end - i));
    std::string mended;
    if (mend_utf8(wrote, mended) != tokenizer.decode(prompt.subspan(j, prompt_end - j))) break;
    if (prompt_end >= prompt.size()) break;  // nothing would be left to feed
    best = {held_end, prompt_end};
    if (held_end >= held.size() || held[held_end] != prompt[prompt_end]) break;
    i = held_end + 1;
    j = prompt_end + 1;
    if (j >= prompt.size()) break;
    best = {i, j};
  }
  return best;
}

}  // namespace ingot
