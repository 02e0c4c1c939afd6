#include "src/text/byte_pair.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "runtime/base/error.hpp"

namespace ingot {
namespace {

constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr TokenId kGone = -1;
/// Up to here searching the whole piece for its lowest rank beats keeping a queue.
constexpr std::size_t kShortPiece = 32;

}  // namespace

BytePairEncoder::BytePairEncoder(const std::array<TokenId, 256>& byte_ids, std::size_t merges)
    : byte_ids_(byte_ids) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(2 * merges, 2));
  slots_.assign(slots, {kEmpty, {kNoRank, kGone}});
  shift_ = 64 - std::countr_zero(slots);
}

const BytePairEncoder::Slot& BytePairEncoder::slot_of(std::uint64_t pair) const {
  // Fibonacci hashing: ids are dense, so the product's top bits are spread evenly.
  std::size_t at = static_cast<std::size_t>((pair ^ pair >> 29) * 0x9E3779B97F4A7C15u >> shift_);
  while (slots_[at].pair != pair && slots_[at].pair != kEmpty)
    at = (at + 1) & (slots_.size() - 1);
  return slots_[at];
}

bool BytePairEncoder::add(TokenId left, TokenId right, Merge merge) {
  Slot& slot = const_cast<Slot&>(slot_of(pair_of(left, right)));
  if (slot.pair != kEmpty) return false;
  slot = {pair_of(left, right), merge};
  return true;
}

std::optional<Merge> BytePairEncoder::find(TokenId left, TokenId right) const {
  const Slot& slot = slot_of(pair_of(left, right));
  if (slot.pair == kEmpty) return std::nullopt;
  return slot.merge;
}

void BytePairEncoder::encode(std::string_view piece, Workspace& workspace,
                             std::vector<TokenId>& out) const {
  if (piece.size() <= kShortPiece) {
    encode_short(piece, out);
  } else {
    encode_long(piece, workspace, out);
  }
}

void BytePairEncoder::encode_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortPiece> ids;
  std::array<Merge, kShortPiece> merges;  // merges[i]: of ids[i] with ids[i + 1]
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i)
    ids[i] = byte_ids_[static_cast<std::uint8_t>(piece[i])];
  const auto look_up = [&](std::size_t i) {
    merges[i] = slot_of(pair_of(ids[i], ids[i + 1])).merge;
  };
  for (std::size_t i = 0; i + 1 < count; ++i)
    look_up(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    ids[best] = merges[best].id;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

void BytePairEncoder::encode_long(std::string_view piece, Workspace& workspace,
                                  std::vector<TokenId>& out) const {
  static_assert(kMaxPieceBytes < kNone);
  if (piece.size() > kMaxPieceBytes) {
    throw EngineError(ErrorCode::unsupported,
                      fmt::format("encoding a text: one word of {} bytes, more than the {} MiB "
                                  "supported; split the text",
                                  piece.size(), kMaxPieceBytes >> 20));
  }
  const auto size = static_cast<std::uint32_t>(piece.size());
  std::vector<Workspace::Symbol>& symbols = workspace.symbols;
  std::vector<std::uint64_t>& queue = workspace.queue;  // min-heap of rank << 32 | place
  symbols.resize(size);
  queue.clear();
  for (std::uint32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_ids_[static_cast<std::uint8_t>(piece[i])], i - 1, i + 1};
  }
  symbols[0].previous = kNone;
  symbols[size - 1].next = kNone;

  const auto merge_at = [&](std::uint32_t place) {
    return slot_of(pair_of(symbols[place].id, symbols[symbols[place].next].id)).merge;
  };
  for (std::uint32_t i = 0; i + 1 < size; ++i) {
    const Merge merge = merge_at(i);
    if (merge.rank != kNoRank) queue.push_back(std::uint64_t{merge.rank} << 32 | i);
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto push = [&](std::uint32_t place) {
    const Merge merge = merge_at(place);
    if (merge.rank == kNoRank) return;
    queue.push_back(std::uint64_t{merge.rank} << 32 | place);
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };

  while (!queue.empty()) {
    const auto rank = static_cast<std::uint32_t>(queue.front() >> 32);
    const auto place = static_cast<std::uint32_t>(queue.front());
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    queue.pop_back();
    // An entry is stale where one of its two symbols has been merged since.
    Workspace::Symbol& symbol = symbols[place];
    if (symbol.id == kGone || symbol.next == kNone) continue;
    const Merge merge = merge_at(place);
    if (merge.rank != rank) continue;
    symbols[symbol.next].id = kGone;
    symbol.id = merge.id;
    symbol.next = symbols[symbol.next].next;
    if (symbol.next != kNone) {
      symbols[symbol.next].previous = place;
      push(place);
    }
    if (symbol.previous != kNone) push(symbol.previous);
  }
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].next)
    out.push_back(symbols[i].id);
}

}  // namespace ingot
