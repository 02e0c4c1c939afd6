#pragma once

#include <string>

#include "src/text/tokenizer.hpp"

namespace ingot::test {

/// A tokenizer.json of fewer than 300 ids in the format of the real one: every byte, the merges
/// "th" and "the", and the control tokens of the chat format; BOS is 0 and EOS is 1. It fits
/// configs whose vocabulary is small.
std::string small_tokenizer_json();

/// The same, parsed once for a test program.
const Tokenizer& small_tokenizer();

/// The id of an added token. Throws std::logic_error if there is none.
TokenId control_id(std::string_view text);

}  // namespace ingot::test
