#include "src/schedule/prefix_index.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace ingot {
namespace {

// More than wait at a time, and still cheap to compare with.
constexpr std::size_t kMostNoted = 256;
constexpr std::size_t kMostNotedTokens = std::size_t{4} << 20;

/// The longest length of whole blocks that leaves at least a token to feed.
std::int64_t whole_blocks(std::int64_t common, std::int64_t prompt_tokens) {
  const std::int64_t most = std::min(common, prompt_tokens - 1);
  return most / PrefixIndex::kPrefixBlock * PrefixIndex::kPrefixBlock;
}

}  // namespace

std::int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t most = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first -
         a.begin();
}

PrefixIndex::~PrefixIndex() {
  for (const Kept& kept : kept_)
    engine_.release(kept.sequence);
}

void PrefixIndex::note(std::span<const TokenId> prompt) {
  if (places_ == 0) return;
  noted_.emplace_back(prompt.begin(), prompt.end());
  noted_tokens_ += prompt.size();
  while (noted_.size() > 1 && (noted_.size() > kMostNoted || noted_tokens_ > kMostNotedTokens)) {
    noted_tokens_ -= noted_.front().size();
    noted_.pop_front();
  }
}

const PrefixIndex::Kept* PrefixIndex::longest(std::span<const TokenId> prompt) const {
  const Kept* best = nullptr;
  for (const Kept& kept : kept_) {
    if (kept.tokens.size() >= prompt.size()) continue;
    if (best != nullptr && kept.tokens.size() <= best->tokens.size()) continue;
    if (std::equal(kept.tokens.begin(), kept.tokens.end(), prompt.begin())) best = &kept;
  }
  return best;
}

void PrefixIndex::touch(const Kept& kept) {
  const auto at =
      std::ranges::find_if(kept_, [&](const Kept& one) { return one.sequence == kept.sequence; });
  std::rotate(at, std::next(at), kept_.end());
}

std::int64_t PrefixIndex::kept_length(std::span<const TokenId> prompt) const {
  const Kept* kept = longest(prompt);
  return kept == nullptr ? 0 : static_cast<std::int64_t>(kept->tokens.size());
}

std::optional<SequenceId> PrefixIndex::take(std::span<const TokenId> prompt) {
  const Kept* kept = longest(prompt);
  if (kept == nullptr) return std::nullopt;
  const SequenceId copy = engine_.fork(kept->sequence);
  touch(*kept);
  return copy;
}

std::vector<std::int64_t> PrefixIndex::lengths_to_keep(std::span<const TokenId> prompt,
                                                       std::int64_t held) const {
  const auto tokens = static_cast<std::int64_t>(prompt.size());
  std::map<std::int64_t, std::int64_t, std::greater<>>
      parting;  // length -> prompts that part there
  bool met_itself = false;
  for (const std::vector<TokenId>& other : noted_) {
    const std::int64_t common = common_prefix(prompt, other);
    if (!met_itself && common == tokens && prompt.size() == other.size()) {
      met_itself = true;
      continue;
    }
    const std::int64_t length = whole_blocks(common, tokens);
    if (length > held) ++parting[length];
  }
  // Where there are more than places: those that save most tokens.
  std::vector<std::pair<std::int64_t, std::int64_t>> saved;  // tokens, length
  std::int64_t sharers = 0;
  for (const auto& [length, prompts] : parting) {
    sharers += prompts;
    saved.emplace_back(sharers * (length - held), length);
  }
  std::ranges::sort(saved, std::greater<>());
  if (saved.size() > places_) saved.resize(places_);
  std::vector<std::int64_t> lengths;
  for (const auto& [tokens_saved, length] : saved)
    lengths.push_back(length);
  std::ranges::sort(lengths);
  return lengths;
}

void PrefixIndex::keep(SequenceId sequence, std::span<const TokenId> tokens) {
  if (places_ == 0) return;
  for (const Kept& kept : kept_) {
    if (std::ranges::equal(kept.tokens, tokens)) return touch(kept);
  }
  if (kept_.size() >= places_) evict();
  while (true) {
    try {
      kept_.push_back({engine_.fork(sequence), {tokens.begin(), tokens.end()}});
      return;
    } catch (const EngineError& error) {
      // Without a copy the next prompt is fed whole: slower, and no more than that.
      if (error.error().code != ErrorCode::exhausted) throw;
      if (!evict()) return;
    }
  }
}

bool PrefixIndex::evict() {
  if (kept_.empty()) return false;
  const SequenceId oldest = kept_.front().sequence;
  kept_.pop_front();
  engine_.release(oldest);
  return true;
}

}  // namespace ingot
