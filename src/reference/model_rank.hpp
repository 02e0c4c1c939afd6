#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/reference/model_weights.hpp"
#include "src/reference/rope.hpp"
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
  /// What a layer needs to know of the rows of a pass, laid out one after another.
  struct Pass {
    std::vector<SequenceState*> states;    ///< one per sequence
    std::vector<std::int64_t> row_counts;  ///< one per sequence
    std::vector<std::size_t> sequence_of;  ///< [rows]
    std::vector<std::int64_t> positions;   ///< [rows]
    std::vector<TokenId> tokens;           ///< [rows]
    RopeAngles plain_angles;               ///< layers of ratio 0
    RopeAngles compress_angles;            ///< the others
    std::size_t rows() const { return tokens.size(); }
  };

  Pass make_pass(std::span<const SequenceRows> rows, bool mtp) const;
  std::vector<float> embed(std::span<const TokenId> tokens);
  void run_layer(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                 std::span<float> streams);
  void attention(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                 std::span<const float> x, std::span<float> y);
  void attend(const LayerWeights& weights, std::size_t layer, const Pass& pass,
              std::span<const float> q, const std::vector<std::vector<int>>& picks,
              std::span<float> o);
  void gather_keys(const LayerWeights& weights, const LayerState& state, std::int64_t position,
                   const std::vector<int>* picks, std::vector<float>& keys) const;
  std::vector<std::vector<int>> choose_blocks(const LayerWeights& weights, std::size_t layer,
                                              const Pass& pass, std::span<const float> qr_quantized,
                                              std::span<const float> x, const RopeAngles& angles);
  void compress(const CompressorWeights& weights, const Pass& pass, std::span<const float> x,
                std::size_t layer, CompressorState LayerState::*state);
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
