#pragma once

#include <string>

namespace ingot::test {

/// The mixed corpus of tests/golden/text/corpus.json: prose, code, many scripts, emoji, digits,
/// line ends, bytes that are not UTF-8, added tokens side by side. tools/check_tokenizer.py makes
/// the same bytes.
std::string text_corpus();

}  // namespace ingot::test
