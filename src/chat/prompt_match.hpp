#pragma once

#include <cstddef>
#include <span>

#include "src/text/tokenizer.hpp"
#include "src/token.hpp"

namespace ingot {

/// How much of a sequence a prompt can go on from.
struct PromptMatch {
  std::size_t kept = 0;    ///< tokens of the sequence that stay
  std::size_t resume = 0;  ///< tokens of the prompt that these stand for; the rest is to be fed

  bool operator==(const PromptMatch&) const = default;
};

/// The longest beginning of `prompt` that the tokens `held` already spell, ending where a control
/// token ends or begins on both sides, and leaving at least one token of the prompt to feed.
/// Ordinary text in between is compared by its bytes, those of `held` mended where they are not
/// UTF-8: what the model wrote need not be cut into tokens as the tokenizer would cut it. A control
/// token that the model itself wrote in an answer is text of that answer (model specification 6.2:
/// messages hold none), so it is matched by what it reads as, and stays in the sequence as the id
/// that it is. What a user typed never matches a control token.
PromptMatch match_prompt(const Tokenizer& tokenizer, std::span<const TokenId> held,
                         std::span<const TokenId> prompt);

}  // namespace ingot
