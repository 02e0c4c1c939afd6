#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/token.hpp"

namespace ingot {

/// A set of token texts that are cut out of a text before anything else is done with it:
/// leftmost first, of those the longest. Sorted strings, narrowed byte by byte, so a look-up needs
/// no memory of its own; it costs at most kMaxBytes steps at each place of the text.
class AddedTokenSet {
 public:
  /// The longest text of an added token that is accepted (V4's longest has 35 bytes).
  static constexpr std::size_t kMaxBytes = 128;

  struct Entry {
    std::string text;
    TokenId id;
  };
  struct Match {
    std::size_t begin;
    std::size_t bytes;
    TokenId id;
  };

  AddedTokenSet() = default;
  /// @param entries unique texts, none empty, none longer than kMaxBytes.
  explicit AddedTokenSet(std::vector<Entry> entries);

  std::optional<Match> find(std::string_view text, std::size_t from) const;
  std::optional<TokenId> id_of(std::string_view text) const;

 private:
  const Entry* longest_at(std::string_view text) const;

  std::vector<Entry> entries_;              ///< sorted by text
  std::array<std::uint32_t, 257> first_{};  ///< entries_ that begin with byte b: first_[b] …
};

}  // namespace ingot
