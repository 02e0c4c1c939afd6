#pragma once

#include <cstdint>
#include <functional>

#include "src/engine/engine.hpp"
#include "src/schedule/scheduler.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// Lengths that are drawn evenly, ends included.
struct TokenRange {
  std::int64_t least = 1, most = 1;
  bool operator==(const TokenRange&) const = default;
};

/// A closed loop: each request that ends is followed by the next one at once.
struct ServeLoad {
  int concurrency = 1;  ///< requests that are there at any time
  int requests = 1;     ///< that are measured
  TokenRange input{.least = 512, .most = 512}, output{.least = 256, .most = 256};
  std::uint64_t seed = 1;  ///< of lengths and prompts
  int prefill_chunk = 512;
};

/// What a closed loop reached.
struct ServeResult {
  ServeLoad load;
  double seconds = 0;
  Scheduler::Totals totals;
  double first_token_median_ms = 0, first_token_p99_ms = 0;  ///< from a request's submission on
  // Of the steps that fed no prompt, each from the end of the one before it:
  std::int64_t decode_steps = 0, decode_tokens = 0;
  double decode_s = 0;
  double mean_context = 0;            ///< tokens of a sequence whose next one is chosen
  std::int64_t graph_steps = -1;      ///< of the engine's passes, from a graph; -1: it has none
  std::int64_t kernels_compiled = 0;  ///< while it was measured: its first requests were too few
  /// Of decode steps alone at the same mean context, at the mean batch of all steps, and at that of
  /// those that fed no prompt; 0: not measured.
  double alone_tokens_per_s = 0, decode_alone_tokens_per_s = 0;

  double output_tokens_per_s() const;
  double input_tokens_per_s() const;
  double steps_per_s() const;
  double mean_batch() const;  ///< requests of a step
  double occupancy() const { return mean_batch() / load.concurrency; }
  double decode_tokens_per_s() const;    ///< of steps that fed no prompt; 0 without such
  double decode_mean_batch() const;      ///< of those; 0 without such
  double prompt_share() const;           ///< of the time, in steps that fed a prompt
  double idle_share() const;             ///< of the time, in which the engine waited for the host
  double share_of_alone() const;         ///< of output_tokens_per_s()
  double decode_share_of_alone() const;  ///< of decode_tokens_per_s()
};

/// Runs the loop: first up to twice as many requests as run at once, which are not measured and
/// bring the engine's kernels and graphs up, then those that are. Greedy, without ends of text.
/// Throws EngineError: invalid_argument for a load that does not fit the engine's context.
ServeResult measure_serve(Engine& engine, const Tokenizer& tokenizer, const ServeLoad& load);

/// Tokens a second of decode steps alone through Engine::step(), tokens chosen.
/// @param context  tokens of each sequence in front of the first step
double decode_tokens_per_s(Engine& engine, int batch, std::int64_t context, int steps);

/// A tokenizer for weights that nobody trained: every id of the vocabulary has a text.
Tokenizer made_up_tokenizer(int vocab_size);

/// Tokens that mean nothing; the same for the same state, which moves on.
std::vector<TokenId> made_up_prompt(std::uint64_t& state, std::int64_t count, int vocab_size);

}  // namespace ingot
