#include "src/text/added_tokens.hpp"

#include <algorithm>

namespace ingot {

AddedTokenSet::AddedTokenSet(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
  for (const Entry& entry : entries_)
    ++first_[static_cast<std::uint8_t>(entry.text[0]) + 1u];
  for (std::size_t byte = 1; byte < first_.size(); ++byte)
    first_[byte] += first_[byte - 1];
}

std::optional<AddedTokenSet::Match> AddedTokenSet::find(std::string_view text,
                                                        std::size_t from) const {
  if (entries_.empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size(); ++at) {
    if (const Entry* entry = longest_at(text.substr(at))) {
      return Match{at, entry->text.size(), entry->id};
    }
  }
  return std::nullopt;
}

std::optional<TokenId> AddedTokenSet::id_of(std::string_view text) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), text,
                       [](const Entry& entry, std::string_view t) { return entry.text < t; });
  if (found == entries_.end() || found->text != text) return std::nullopt;
  return found->id;
}

const AddedTokenSet::Entry* AddedTokenSet::longest_at(std::string_view text) const {
  const auto byte = static_cast<std::uint8_t>(text[0]);
  auto low = entries_.begin() + first_[byte];
  auto high = entries_.begin() + first_[byte + 1u];
  const Entry* longest = nullptr;
  // Invariant: the entries in [low, high) agree with text in their first `depth` bytes. One that
  // ends there is the first of them.
  for (std::size_t depth = 1; low != high; ++depth) {
    if (low->text.size() == depth) {
      longest = &*low;
      ++low;
    }
    if (depth == text.size() || low == high) break;
    if (high - low == 1) {  // one is left: no more narrowing
      if (text.substr(depth).starts_with(std::string_view(low->text).substr(depth))) {
        longest = &*low;
      }
      break;
    }
    const auto wanted = static_cast<std::uint8_t>(text[depth]);
    const auto at_depth = [&](const Entry& entry) {
      return static_cast<std::uint8_t>(entry.text[depth]);
    };
    low = std::partition_point(low, high,
                               [&](const Entry& entry) { return at_depth(entry) < wanted; });
    high = std::partition_point(low, high,
                                [&](const Entry& entry) { return at_depth(entry) == wanted; });
  }
  return longest;
}

}  // namespace ingot
