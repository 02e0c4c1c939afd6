#pragma once

#include <nlohmann/json.hpp>

#include "src/token.hpp"

namespace ingot::test {

/// The small tokenizer with further merges that come first: "ab", "abc", "aa", "aaaa", of the ids
/// 400 to 403. To be changed and parsed.
nlohmann::ordered_json made_tokenizer();

/// The id of a byte in it.
constexpr TokenId made_id(char byte) {
  return 2 + static_cast<unsigned char>(byte);
}

}  // namespace ingot::test
