#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/engine/engine.hpp"
#include "src/schedule/generation.hpp"

namespace ingot {

struct SchedulerOptions {
  int max_batch = 8;        ///< sequences that run at once
  int prefill_chunk = 512;  ///< prompt tokens of one sequence in one step
  /// Prompt tokens of all sequences in one step, in whole chunks; one chunk always runs.
  int prefill_tokens_per_step = 512;
};

enum class RequestId : std::uint64_t {};

/// A request and what its owner wants to hear of it. Callbacks run inside step(), on its thread,
/// and must not call the scheduler, but for cancel().
struct ScheduledRequest {
  GenerationRequest generation;
  /// Set: the answer goes on from this sequence, which must hold a proper prefix of the prompt, and
  /// which stays the caller's. Unset: the scheduler makes and releases one.
  std::optional<SequenceId> sequence;
  /// Set: once the sequence holds this many of the prompt's tokens, on_snapshot gets a fork of it,
  /// and owns it.
  std::optional<std::int64_t> snapshot_at;
  std::function<void(SequenceId)> on_snapshot;
  std::function<void(const OutputDelta&)> on_delta;
  std::function<void(GenerationResult)> on_finish;
};

/// Continuous batching over one engine: requests join and leave between steps, and chunks of
/// prompts share steps with running answers. Prompts are cut at multiples of the chunk size counted
/// from position 0, whatever runs beside them, so the text of a request does not depend on its
/// neighbours. One thread at a time; engine and tokenizer must outlive it.
class Scheduler {
 public:
  Scheduler(Engine& engine, const Tokenizer& tokenizer, const SchedulerOptions& options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  /// Queues a request; on_finish is called for each request that was taken, exactly once.
  /// Errors: invalid_argument for sampling parameters out of range, a token outside the vocabulary
  /// or a prompt that leaves no room for an answer.
  [[nodiscard]] Result<RequestId> submit(ScheduledRequest request);

  /// The request ends before the next step, with what it has.
  void cancel(RequestId id);
  void cancel_all();

  /// From the next step on; where the cuts lie is then the caller's affair.
  void set_prefill_chunk(int tokens) { options_.prefill_chunk = tokens; }

  /// Runs one step. Returns whether anything is left to do.
  bool step();

  /// The most tokens of one request, prompt and answer.
  std::int64_t max_context() const { return engine_.max_context(); }
  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }

  struct Totals {
    std::int64_t steps = 0;
    std::int64_t prompt_tokens = 0;     ///< that were fed: reused ones do not count
    std::int64_t generated_tokens = 0;  ///< sampled, the ones that ended an answer included
  };
  const Totals& totals() const { return totals_; }

 private:
  struct Running;

  void admit();
  void finish_cancelled();
  void retire_done();
  std::int64_t chunk_end(const Running& running) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  ControlTokens control_;
  SchedulerOptions options_;
  Sampler sampler_;
  std::uint64_t next_id_ = 1;
  std::deque<std::unique_ptr<Running>> waiting_;
  std::vector<std::unique_ptr<Running>> running_;
  Totals totals_;
};

}  // namespace ingot
