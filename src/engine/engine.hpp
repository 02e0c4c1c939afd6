#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/sampler/sampler.hpp"
#include "src/token.hpp"

namespace ingot {

/// Names one sequence inside an Engine. Never reused within an engine's life.
enum class SequenceId : std::uint64_t {};

/// For which of a step's tokens logits are wanted.
enum class LogitsOf { none, last, all };

/// What Sampler needs beside the logits to choose the token that follows a step's last one. What it
/// points to stays as it is until the step is over.
struct SampleRequest {
  const SamplingParams* params = nullptr;  ///< validated
  const TokenHistory* history = nullptr;
  std::int64_t position = 0;  ///< tokens that precede the one to be chosen
};

/// One sequence's share of a step: `tokens` are appended at its current length. A decode step has
/// one token, a chunk of a prompt many; both kinds share a step.
struct SequenceStep {
  SequenceId sequence{};
  std::span<const TokenId> tokens;  ///< at least one; ids within the vocabulary
  LogitsOf logits = LogitsOf::last;
  /// An offer, with LogitsOf::last only: the engine may choose the next token itself. StepLogits
  /// says whether it did.
  std::optional<SampleRequest> sample = std::nullopt;
};

/// What one SequenceStep brought: its logits, [rows, vocab_size] fp32, row-major, rows in the order
/// of the tokens; or a token.
struct StepLogits {
  int rows = 0;
  std::vector<float> values;
  /// Set where the engine took the offer of SequenceStep::sample, and then there are no logits:
  /// what Sampler::sample makes of them, its errors included. Unset: the caller samples.
  std::optional<Result<SampledToken>> sampled = std::nullopt;

  std::span<const float> row(int index) const {
    const auto width = values.size() / static_cast<std::size_t>(rows);
    return std::span(values).subspan(static_cast<std::size_t>(index) * width, width);
  }
};

/// What an engine that compiles kernels did since its start.
struct EngineCounts {
  std::int64_t steps = 0;
  std::int64_t graph_steps = 0;  ///< of them, those replayed from a graph
  std::int64_t kernels_compiled = 0;
};

/// What holds the states of sequences, in pages of KV cache of every kind.
struct EngineRoom {
  std::int64_t used = 0, total = 0;
};

/// Steps that may come: of one sequence, by itself, in chunks of a prompt whose logits nobody
/// wants, and token by token.
struct StepForecast {
  /// Tokens that the sequence holds before the first of them, and behind the last.
  std::int64_t from = 0, to = 0;
  int chunk = 1;        ///< the most tokens of a chunk
  bool offered = true;  ///< behind single tokens the engine may choose the next one
  bool asked = false;   ///< or their logits are wanted
};

/// NaN that appeared while running: each stays in its own row.
struct NumericFaults {
  std::int64_t nan_rows = 0;    ///< rows of logits with a NaN among them
  std::int64_t nan_scores = 0;  ///< of the indexer, which counts them as minus infinity
};

/// Runs the model over many sequences at once. Everything above it — scheduler, sampler, chat,
/// batch generation — knows only this interface. One thread calls an engine at a time.
///
/// A sequence's logits do not depend on what else is in the batch, and, beyond the engine's stated
/// rounding, not on how its tokens were cut into steps.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelConfig& config() const = 0;
  /// The most tokens one sequence may hold.
  virtual std::int64_t max_context() const = 0;

  /// An empty sequence.
  virtual SequenceId create_sequence() = 0;
  /// An independent copy: equal state now, separate from here on. A snapshot is a fork that is
  /// kept.
  virtual SequenceId fork(SequenceId sequence) = 0;
  virtual void release(SequenceId sequence) = 0;
  /// Tokens that the sequence holds.
  virtual std::int64_t length(SequenceId sequence) const = 0;

  /// Drops the newest tokens so that `length` remain, as if they had never been given.
  /// At most max_rollback() tokens can be dropped. Throws EngineError(invalid_argument) beyond.
  virtual void rollback(SequenceId sequence, std::int64_t length) = 0;
  virtual std::int64_t max_rollback() const = 0;

  /// nullopt for an engine that has no kernels.
  virtual std::optional<EngineCounts> counts() const { return std::nullopt; }

  /// nullopt for an engine whose sequences take what memory there is.
  virtual std::optional<EngineRoom> room() const { return std::nullopt; }

  /// A sequence as bytes for a file: restore() of an engine of the same kind over the same weights
  /// makes an equal sequence of them (what ties them to these weights is the caller's affair).
  /// An engine need not be able to. Error: unsupported.
  [[nodiscard]] virtual Result<std::string> snapshot_bytes(SequenceId) const {
    return fail(ErrorCode::unsupported, "this engine keeps no sequence beyond its own life");
  }
  /// Errors: corrupt for bytes that no snapshot_bytes() wrote; unsupported for those of another
  /// kind of engine, TP size or version, or a sequence that is too long for this one.
  [[nodiscard]] virtual Result<SequenceId> restore(std::string_view) {
    return fail(ErrorCode::unsupported, "this engine keeps no sequence beyond its own life");
  }

  /// Runs one step of the batch; result i belongs to batch[i]. A sequence appears at most once.
  /// Throws EngineError(invalid_argument) for a token outside the vocabulary, an unknown sequence
  /// or a context overflow, before any state changes.
  virtual std::vector<StepLogits> step(std::span<const SequenceStep> batch) = 0;

  /// Makes something ready that steps to come may need and that takes time when they need it first:
  /// a few hundredths of a second of work, and nothing that takes much longer. Returns whether more
  /// may be left. What cannot be made ready is left to the step that needs it, whose error it is
  /// then. Does nothing while a step is under way.
  virtual bool prepare(const StepForecast&) { return false; }

  /// Whether a step can be had in two halves, between which the caller does something else: then
  /// launch() and finish() are step().
  virtual bool can_overlap() const { return false; }
  /// Begins a step and returns while it runs. Throws as step() does, and then none was begun. Until
  /// finish(), what the batch points to stays as it is and its sequences are left alone; others may
  /// be created, forked and released. One step at a time; for an engine that can_overlap().
  virtual void launch(std::span<const SequenceStep>) {
    throw EngineError(ErrorCode::unsupported,
                      "beginning a step: this engine has its steps in one piece");
  }
  /// Waits for the step that was begun. What it returns stays until the next one is begun. Whatever
  /// it throws, the step is over.
  virtual std::span<StepLogits> finish() {
    throw EngineError(ErrorCode::unsupported,
                      "ending a step: this engine has its steps in one piece");
  }

  /// NaN that running has brought up since the engine's start.
  virtual NumericFaults numeric_faults() const { return {}; }
};

}  // namespace ingot
