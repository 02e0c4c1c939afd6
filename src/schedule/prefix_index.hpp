#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "src/engine/engine.hpp"

namespace ingot {

/// Tokens that two prompts begin with alike.
std::int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

/// Copies of sequences at beginnings that prompts have in common, so that these are fed once. Kept
/// are multiples of kPrefixBlock tokens, in a bounded number of places; the one that was not used
/// for longest makes room. What is worth keeping follows from the prompts that it was told of.
class PrefixIndex {
 public:
  /// Lengths at which copies are kept: both kinds of compressed KV have whole blocks there.
  static constexpr std::int64_t kPrefixBlock = 128;

  /// @param places  copies that are kept at most; 0: none, and nothing here does anything
  PrefixIndex(Engine& engine, std::size_t places) : engine_(engine), places_(places) {}
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;
  /// Releases all copies.
  ~PrefixIndex();

  /// A prompt that is to be answered: from now on it counts for others what it begins with.
  void note(std::span<const TokenId> prompt);

  /// Tokens of the longest kept beginning that leaves something of the prompt to feed; 0: none.
  std::int64_t kept_length(std::span<const TokenId> prompt) const;
  /// A copy of it, which is the caller's. nullopt where none is kept.
  /// Throws EngineError(exhausted) where the engine has no place for one.
  std::optional<SequenceId> take(std::span<const TokenId> prompt);

  /// Lengths beyond `held` at which copies of a prompt's sequence are worth keeping, ascending:
  /// where it parts from the others that were noted, itself taken once.
  std::vector<std::int64_t> lengths_to_keep(std::span<const TokenId> prompt,
                                            std::int64_t held) const;
  /// Keeps a copy of a sequence that holds these tokens, if the engine has a place for it.
  void keep(SequenceId sequence, std::span<const TokenId> tokens);

  /// Gives up the copy that was not used for longest. False where none is kept.
  bool evict();
  std::size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    SequenceId sequence{};
    std::vector<TokenId> tokens;
  };

  const Kept* longest(std::span<const TokenId> prompt) const;
  void touch(const Kept& kept);

  Engine& engine_;
  std::size_t places_;
  std::deque<Kept> kept_;  ///< the one used last is the last
  std::deque<std::vector<TokenId>> noted_;
  std::size_t noted_tokens_ = 0;
};

}  // namespace ingot
