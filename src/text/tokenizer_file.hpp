#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/token.hpp"

namespace ingot {

/// What a tokenizer.json says, as far as a byte-level BPE of the DeepSeek-V4 kind goes. Anything
/// that would change ids and that we do not do was refused on the way; ids are in range.
struct TokenizerFile {
  struct Added {
    std::string text;
    TokenId id = 0;
    bool normalized = false;  ///< searched for after those that are not
  };
  std::vector<std::pair<std::string, TokenId>> vocab;       ///< text in the byte alphabet
  std::vector<std::pair<std::string, std::string>> merges;  ///< in order of rank
  std::vector<Added> added;
  std::vector<std::string> patterns;  ///< of the split stages, in order
};

/// Sizes beyond these are refused (V4 has 129,280 ids, 127,741 merges and 1,283 added tokens).
inline constexpr int kMaxTokenIds = 1 << 18;
inline constexpr std::size_t kMaxMerges = 1 << 18;
inline constexpr std::size_t kMaxAddedTokens = 1 << 14;
/// The largest tokenizer.json that is read, unpacked (V4's has 6.4 MB).
inline constexpr std::size_t kMaxTokenizerBytes = 16 << 20;

/// `error` with the file's name in front and the remedy behind.
Error tokenizer_error(std::string_view origin, Error error);

/// Errors: corrupt, unsupported; "<origin>: <place>: …".
[[nodiscard]] Result<TokenizerFile> parse_tokenizer_file(std::string_view json,
                                                         std::string_view origin);

}  // namespace ingot
