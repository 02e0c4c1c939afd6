#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "src/schedule/scheduler.hpp"

namespace ingot {

/// A request that was submitted, from then on until its owner has heard of its end.
struct Scheduler::Running {
  RequestId id{};
  ScheduledRequest request;
  Generation generation;
  SequenceId sequence{};
  bool has_sequence = false;
  std::int64_t fed = 0;  ///< tokens of prompt and answer that the sequence holds
  /// Prompt and answer of one that gave its room back: what is to be fed before it goes on.
  std::vector<TokenId> replay = {};
  std::int64_t reached = 0;  ///< the most tokens that its sequence has held
  bool begun = false;        ///< it has had a place
  bool answered = false;     ///< its first token is chosen
  bool snapshot_taken = false;
  bool cancelled = false;
  bool reported = false;    ///< on_finish was called
  OutputDelta untold = {};  ///< text that is released, of which nobody has heard yet
  bool in_prompt = false;   ///< the newest step fed a chunk of the prompt, and more is left
  std::vector<std::int64_t> keep_at = {};  ///< lengths of which a copy will be kept, ascending
  /// One that is about to feed what this prompt begins with too, and how much of it.
  std::optional<RequestId> leader = std::nullopt;
  std::int64_t leader_length = 0;

  std::span<const TokenId> prompt() const { return generation.request().prompt; }
  const std::vector<TokenId>& to_feed() const {
    return replay.empty() ? generation.request().prompt : replay;
  }
  /// What it may cost, for an order of those that wait.
  std::int64_t most_tokens() const {
    const GenerationRequest& asked = generation.request();
    return static_cast<std::int64_t>(asked.prompt.size()) +
           asked.sampling.max_tokens.value_or(std::numeric_limits<std::int32_t>::max());
  }
};

}  // namespace ingot
