#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "src/checkpoint/checkpoint.hpp"
#include "src/engine/engine.hpp"

namespace ingot {

namespace reference {
class SequenceState;
}

struct ReferenceOptions {
  int threads = 0;                  ///< worker threads in all; 0 = one per CPU of this process
  int tp_size = 1;                  ///< tensor parallel ranks, each a thread of this process
  std::int64_t max_context = 0;     ///< tokens a sequence may hold; 0 = max_position_embeddings
  std::int64_t max_rollback = 128;  ///< tokens that rollback() can go back from the longest length
};

/// The exact model on the CPU: plain loops with the rounding points of the model specification,
/// section 3. The oracle of every kernel, and the engine of machines without a GPU.
///
/// Weights stay quantised in the mapped checkpoint; a sequence's memory grows with its length.
/// The order of every sum is fixed by the row alone, so a row's logits are bit-equal whatever the
/// batch, the cutting into steps and the thread count. Another tp_size changes the order of the
/// sums over split dimensions (the output projection, the experts' down projections: less than 1e-6
/// of their size), and nothing else.
class ReferenceEngine final : public Engine {
 public:
  /// @param checkpoint  from open_checkpoint(): every tensor that the config implies is there
  /// Errors (thrown): invalid_argument for a TP size that does not divide the model (the message
  /// lists those that do) or an option out of range; corrupt for damage found in the weights;
  /// unsupported for a head width that the loops do not take.
  ReferenceEngine(Checkpoint checkpoint, const ReferenceOptions& options);
  ~ReferenceEngine() override;

  const ModelConfig& config() const override;
  std::int64_t max_context() const override;
  SequenceId create_sequence() override;
  SequenceId fork(SequenceId sequence) override;
  void release(SequenceId sequence) override;
  std::int64_t length(SequenceId sequence) const override;
  void rollback(SequenceId sequence, std::int64_t length) override;
  std::int64_t max_rollback() const override;
  Result<std::string> snapshot_bytes(SequenceId sequence) const override;
  Result<SequenceId> restore(std::string_view bytes) override;
  std::vector<StepLogits> step(std::span<const SequenceStep> batch) override;

  NumericFaults numeric_faults() const override { return {.nan_rows = nan_rows()}; }

  /// Runs the MTP block over the oldest positions of the sequence that it has not seen.
  /// @param next_tokens  the token that follows each of these positions; at least one, at most
  ///                     length() - mtp_length()
  /// @return logits of the token after next_tokens, [rows, vocab_size]
  /// Call it after each step: hidden states are kept for the tokens of the newest step and for
  /// max_rollback() + 1 tokens. Throws invalid_argument where the model has no MTP block, or where
  /// the hidden state of the next position is gone. Source: specification section 3.13.
  StepLogits mtp_step(SequenceId sequence, std::span<const TokenId> next_tokens,
                      LogitsOf logits = LogitsOf::last);
  /// Positions that the MTP block has seen. rollback(length) lowers it to length - 1, as the entry
  /// of a position depends on the token after it.
  std::int64_t mtp_length(SequenceId sequence) const;

  /// Rows of logits with a NaN in them, since the start. A NaN stays in its own row.
  std::int64_t nan_rows() const;

  /// What a rank keeps of a sequence; for tests. Valid until the next call that changes it.
  const reference::SequenceState& state(SequenceId sequence, int tp_rank = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The engine behind the interface that everything above knows.
std::unique_ptr<Engine> make_reference_engine(Checkpoint checkpoint,
                                              const ReferenceOptions& options = {});

}  // namespace ingot
