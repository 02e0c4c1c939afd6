#pragma once

#include <cstdint>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/reference/compressor.hpp"
#include "src/reference/model_weights.hpp"
#include "src/reference/row_history.hpp"

namespace ingot::reference {

/// What one layer keeps of a sequence.
struct LayerState {
  RowHistory<std::uint16_t> window;  ///< [head_dim] bf16 bits per token, as kv_entries made them
  CompressorState compressor;        ///< layers of ratio 4 and 128
  CompressorState index;             ///< layers of ratio 4
};

/// What one rank keeps of a sequence: per layer the raw window, running compressor rows and pools,
/// and the streams that the MTP block has not seen. Copying it forks the sequence. Everything grows
/// with the actual length only. Source: model specification section 4.1.
class SequenceState {
 public:
  /// @param max_rollback  newest tokens that rollback() must be able to drop
  SequenceState(const ModelConfig& config, const ModelWeights& weights, std::int64_t max_rollback);

  std::int64_t length() const { return length_; }
  /// Positions that the MTP block has seen.
  std::int64_t mtp_length() const { return mtp_length_; }
  /// The shortest length that rollback() can restore exactly.
  std::int64_t rollback_floor() const { return rollback_floor_; }

  /// Layers of the trunk, then the MTP block.
  std::vector<LayerState> layers;
  /// [hc · hidden] bf16 bits per token: the streams behind the last layer. Only with an MTP block.
  RowHistory<std::uint16_t> streams;

  /// Every layer of the trunk has taken `tokens` more tokens.
  void advance(std::int64_t tokens);
  /// The MTP block has taken `tokens` more tokens.
  void advance_mtp(std::int64_t tokens);
  /// A step begins: streams that no rollback can bring back to the MTP block are forgotten.
  void begin_step();
  /// Tokens have been taken: rows that no continuation, after any permitted rollback, can read are
  /// forgotten.
  void forget();
  /// @param length  rollback_floor() ≤ length ≤ length()
  void rollback(std::int64_t length);

  void write(ByteWriter& out) const;
  /// Takes what write() of a state of the same model wrote. False, and of no use afterwards, where
  /// it is anything else.
  bool read(ByteReader& in);

  /// Equal in all that a continuation, after any permitted rollback, can read.
  bool same_as(const SequenceState& other) const;

 private:
  bool is_mtp(std::size_t layer) const { return has_mtp_ && layer + 1 == layers.size(); }

  bool has_mtp_;
  std::int64_t window_;
  std::int64_t max_rollback_;
  std::int64_t length_ = 0;
  std::int64_t mtp_length_ = 0;
  std::int64_t rollback_floor_ = 0;
};

}  // namespace ingot::reference
