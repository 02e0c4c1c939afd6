#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/reference/model_weights.hpp"
#include "src/reference/row_batch.hpp"
#include "src/reference/sequence_state.hpp"
#include "src/reference/thread_pool.hpp"
#include "src/reference/tp_group.hpp"
#include "src/token.hpp"

namespace ingot::reference {

/// One sequence's rows in a pass.
struct SequenceRows {
  std::span<SequenceState> states;  ///< one per rank
  std::span<const TokenId> tokens;
  /// The last rows of `tokens` whose logits are wanted: [logits.size() / vocab_size, vocab_size].
  /// Each rank writes the columns of its share of the vocabulary.
  std::span<float> logits;
};

/// One tensor parallel rank: its weights, its threads, and the forward pass.
/// Source: model specification section 3. All ranks of a group call the same functions with the
/// same rows; they meet in the group's all-reduces.
class ModelRank {
 public:
  ModelRank(const Checkpoint& checkpoint, TpGroup& group, int tp_rank, int threads);

  const ModelWeights& weights() const { return weights_; }

  /// Appends the rows' tokens to their sequences. The rows are independent of each other.
  void forward(std::span<const SequenceRows> rows);

  /// Runs the MTP block over the next tokens.size() positions that it has not seen; tokens are
  /// those that follow each position. Source: section 3.13.
  void mtp_forward(const SequenceRows& rows);

 private:
  /// The rows that go through the layers together.
  struct Pass {
    std::vector<SequenceState*> states;  ///< one per sequence
    std::vector<TokenId> tokens;         ///< [rows]
    RowBatch batch;
  };

  Pass make_pass(std::span<const SequenceRows> rows, bool mtp) const;
  std::vector<float> embed(std::span<const TokenId> tokens);
  void run_layer(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                 std::span<float> streams);
  void attention(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                 std::span<const float> x, std::span<float> y);
  void moe(const MoeWeights& weights, const Pass& pass, std::span<const float> z,
           std::span<float> y);
  void write_logits(std::span<const SequenceRows> rows, std::span<const float> streams,
                    const HyperConnectionWeights& hc_head, std::span<const float> norm);

  const ModelConfig& config_;
  TpGroup& group_;
  int tp_rank_;
  ThreadPool pool_;
  ModelWeights weights_;
  std::vector<float> plain_frequencies_;
  std::vector<float> compress_frequencies_;
};

}  // namespace ingot::reference
