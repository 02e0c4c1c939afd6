#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/token.hpp"

namespace ingot {

/// What a pair of neighbouring tokens becomes, and how early.
struct Merge {
  std::uint32_t rank;  ///< place in the list of merges; the lowest of a piece goes first
  TokenId id;
};

/// Byte-pair encoding: a piece starts as one token per byte; again and again the neighbouring pair
/// of the lowest rank, leftmost first, becomes one token.
/// Time O(n log n) in the bytes of a piece. Immutable once filled; any thread may call encode().
class BytePairEncoder {
 public:
  /// @param byte_ids the token of each byte
  /// @param merges   how many pairs will be added, at most
  BytePairEncoder(const std::array<TokenId, 256>& byte_ids, std::size_t merges);

  /// False if the pair is there already.
  bool add(TokenId left, TokenId right, Merge merge);
  std::optional<Merge> find(TokenId left, TokenId right) const;

  /// Room that encode() works in; reused from piece to piece.
  struct Workspace {
    struct Symbol {
      TokenId id;
      std::uint32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> queue;
  };

  /// A longer piece is refused: encoding it takes some 25 bytes of memory for each of its own.
  static constexpr std::size_t kMaxPieceBytes = std::size_t{16} << 20;

  /// Appends the tokens of `piece` to `out`. Throws EngineError(unsupported) for more than
  /// kMaxPieceBytes, before anything is allocated.
  void encode(std::string_view piece, Workspace& workspace, std::vector<TokenId>& out) const;

 private:
  struct Slot {
    std::uint64_t pair;
    Merge merge;
  };
  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  const Slot& slot_of(std::uint64_t pair) const;
  void encode_short(std::string_view piece, std::vector<TokenId>& out) const;
  void encode_long(std::string_view piece, Workspace& workspace, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_ids_;
  std::vector<Slot> slots_;  ///< open addressing, a power of two of them, at most half full
  int shift_;
};

}  // namespace ingot
