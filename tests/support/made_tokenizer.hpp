#pragma once

#include <nlohmann/json.hpp>

namespace ingot::test {

/// A small tokenizer.json of the DeepSeek-V4 kind: the 256 bytes, a few merges ("ab", "abc", "aa",
/// "aaaa"), the chat format's markers as added tokens, the real split patterns.
nlohmann::ordered_json made_tokenizer();

}  // namespace ingot::test
