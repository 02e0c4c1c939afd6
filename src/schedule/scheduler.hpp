#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/engine/engine.hpp"
#include "src/schedule/generation.hpp"
#include "src/schedule/prefix_index.hpp"

namespace ingot {

struct SchedulerOptions {
  int max_batch = 8;        ///< sequences that run at once
  int prefill_chunk = 512;  ///< prompt tokens of one sequence in one step
  /// Prompt tokens of all sequences in one step, in whole chunks; one chunk always runs.
  int prefill_tokens_per_step = 512;
  /// Of those that wait the one with the most to do begins first, instead of the one that came
  /// first: the end of a job has short ones to fill the batch with.
  bool longest_first = false;
  /// Copies that are kept of what prompts begin with in common: sequences of the engine beside
  /// those of max_batch. 0: every prompt is fed whole.
  int kept_prefixes = 0;
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
  /// The answer's first token is chosen, whether or not it brings text.
  std::function<void()> on_first_token;
  std::function<void(const OutputDelta&)> on_delta;
  std::function<void(GenerationResult)> on_finish;
};

/// Continuous batching over one engine: requests join and leave between steps, and chunks of
/// prompts share steps with running answers. Prompts are cut at multiples of the chunk size counted
/// from position 0, whatever runs beside them, so the text of a request does not depend on its
/// neighbours. Prompts that begin alike are fed once up to where they part, in whole blocks of
/// PrefixIndex: that is one more cut, whose effect is within the engine's rounding. Where the
/// engine has no room for a step, the requests that came last give theirs
/// back, wait, and are fed again, with what they had said; the oldest one always goes on.
///
/// Over an engine that can_overlap() the next step is under way before the newest one's texts are
/// made and its callbacks run, and until step() is called again. What only a text shows, a stop
/// string, and what is cancelled then take part in that step for nothing: its token is dropped. Who
/// is submitted meanwhile joins the step after it. Texts are the same.
///
/// A step in which only running answers take part allocates nothing of its own: what is allocated
/// is what answers grow by (room for tokens and text, twice as much each time; tokens counted for
/// penalties; logprobs that were asked for), and a piece of text of more than 15 bytes.
///
/// One thread at a time; engine and tokenizer must outlive it.
class Scheduler {
 public:
  Scheduler(Engine& engine, const Tokenizer& tokenizer, const SchedulerOptions& options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  /// Queues a request; on_finish is called for each request that was taken, exactly once. One that
  /// does not fit the engine all by itself ends with an error (exhausted).
  /// Errors: invalid_argument for sampling parameters out of range, a token outside the vocabulary
  /// or a prompt that leaves no room for an answer.
  [[nodiscard]] Result<RequestId> submit(ScheduledRequest request);

  /// The request ends before the next step, with what it has.
  void cancel(RequestId id);
  void cancel_all();
  /// Those that have not begun.
  void cancel_waiting();

  /// From the next step on; where the cuts lie is then the caller's affair.
  void set_prefill_chunk(int tokens) { options_.prefill_chunk = tokens; }

  /// Runs one step, or ends the one that is under way, and tells what it brought. Returns whether
  /// anything is left to do; where nothing is, no step is under way.
  /// Throws EngineError: what the engine throws; exhausted only where all room is held by sequences
  /// that are not the scheduler's own.
  bool step();

  /// The most tokens of one request, prompt and answer.
  std::int64_t max_context() const { return engine_.max_context(); }
  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }

  struct Totals {
    std::int64_t steps = 0;
    std::int64_t prompt_tokens = 0;     ///< that were fed: reused ones do not count
    std::int64_t reused_tokens = 0;     ///< of prompts that begin as others do
    std::int64_t generated_tokens = 0;  ///< sampled, the ones that ended an answer included
    std::int64_t sequence_steps = 0;    ///< over all steps, how many requests took part
    std::int64_t prompt_steps = 0;      ///< of the steps, those that fed more than newest tokens
    std::int64_t preemptions = 0;       ///< how often a request gave its room back
    std::int64_t repeated_tokens = 0;   ///< that were fed again because of that
    std::int64_t dropped_tokens = 0;    ///< sampled for who had ended meanwhile; not generated ones
    /// The engine was idle, with work to do: from the end of a step until the next one is begun.
    double engine_idle_s = 0;
  };
  const Totals& totals() const { return totals_; }
  /// What the engine did, where it has kernels.
  std::optional<EngineCounts> engine_counts() const { return engine_.counts(); }
  /// What the engine's sequences hold of it.
  std::optional<EngineRoom> engine_room() const { return engine_.room(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Running;

  /// One step's work. Kept from step to step for its memory.
  struct Batch {
    std::vector<SequenceStep> steps;
    std::vector<Running*> members;  ///< whose each of them is
    std::vector<TokenId> newest;    ///< tokens of answers, which the steps point to
    std::int64_t prefill_tokens = 0;
  };

  void admit();
  bool begin(Running& running);
  void take_place(Running& running);
  bool waits_for_prefix(Running& running) const;
  std::size_t next_waiting() const;
  void make_room(const EngineError& error);
  void preempt(std::size_t victim);
  void finish_cancelled();
  void retire();
  void count_end();
  std::int64_t chunk_end(const Running& running) const;

  // scheduler_step.cpp
  void make_batch();
  void begin_step();
  void run_batch();
  void end_step();
  void count(Running& running, const SequenceStep& step);
  void take(Running& running, StepLogits& result);
  void tell(Running& running);
  void report(Running& running);
  void tell_all();

  Engine& engine_;
  const Tokenizer& tokenizer_;
  ControlTokens control_;
  SchedulerOptions options_;
  Sampler sampler_;
  PrefixIndex prefixes_;
  std::uint64_t next_id_ = 1;
  std::deque<std::unique_ptr<Running>> waiting_;
  std::vector<std::unique_ptr<Running>> running_;
  /// As many run at once as the engine has shown room for: fewer after a preemption, one more after
  /// every so many that ended without one.
  int places_;
  int ended_since_preemption_ = 0;
  Totals totals_;

  std::vector<std::unique_ptr<Running>> ended_;  ///< have given all back; not all are reported
  std::vector<Running*> taken_;  ///< who got a token from the newest step, in its order

  const bool overlaps_;
  Batch batch_;
  bool under_way_ = false;           ///< batch_ is begun, and has not ended
  std::vector<StepLogits> results_;  ///< of an engine that cannot overlap
  std::optional<Clock::time_point> idle_since_;
};

}  // namespace ingot
