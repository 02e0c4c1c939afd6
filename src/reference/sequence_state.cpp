#include "src/reference/sequence_state.hpp"

#include <algorithm>
#include <cstddef>

namespace ingot::reference {
namespace {

LayerState layer_state(const ModelConfig& config, const LayerWeights& weights) {
  LayerState state;
  state.window = RowHistory<std::uint16_t>(config.head_dim);
  if (weights.compressor) state.compressor = CompressorState(*weights.compressor);
  if (weights.indexer) state.index = CompressorState(weights.indexer->compressor);
  return state;
}

bool same_rows(const RowHistory<std::uint16_t>& a, const RowHistory<std::uint16_t>& b,
               std::int64_t from) {
  if (a.end() != b.end()) return false;
  from = std::clamp<std::int64_t>(from, 0, a.end());
  return std::ranges::equal(a.rows(from, a.end()), b.rows(from, b.end()));
}

}  // namespace

SequenceState::SequenceState(const ModelConfig& config, const ModelWeights& weights,
                             std::int64_t max_rollback)
    : has_mtp_(weights.mtp.has_value()),
      window_(config.sliding_window),
      max_rollback_(max_rollback) {
  for (const LayerWeights& layer : weights.layers)
    layers.push_back(layer_state(config, layer));
  if (weights.mtp) {
    layers.push_back(layer_state(config, weights.mtp->layer));
    streams = RowHistory<std::uint16_t>(config.hc_mult * config.hidden_size);
  }
}

void SequenceState::advance(std::int64_t tokens) {
  length_ += tokens;
}

void SequenceState::advance_mtp(std::int64_t tokens) {
  mtp_length_ += tokens;
}

void SequenceState::begin_step() {
  // A rollback to length L makes the MTP block see position L - 1 again: its next token changed.
  streams.forget_before(length_ - max_rollback_ - 1);
}

void SequenceState::forget() {
  rollback_floor_ = std::max(rollback_floor_, length_ - max_rollback_);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    // The shortest length from which this layer may have to go on.
    const std::int64_t shortest =
        is_mtp(i) ? std::min(mtp_length_, rollback_floor_ - 1) : rollback_floor_;
    // A query at position p reads the window's positions p - window + 1 to p.
    layers[i].window.forget_before(shortest - window_ + 1);
    layers[i].compressor.forget_before(shortest);
    layers[i].index.forget_before(shortest);
  }
}

void SequenceState::rollback(std::int64_t length) {
  if (length == length_) return;
  length_ = length;
  mtp_length_ = std::min(mtp_length_, std::max<std::int64_t>(0, length - 1));
  streams.truncate(length);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::int64_t kept = is_mtp(i) ? mtp_length_ : length;
    layers[i].window.truncate(kept);
    layers[i].compressor.rollback(kept);
    layers[i].index.rollback(kept);
  }
}

void SequenceState::write(ByteWriter& out) const {
  out.u64(static_cast<std::uint64_t>(length_));
  out.u64(static_cast<std::uint64_t>(mtp_length_));
  out.u64(static_cast<std::uint64_t>(rollback_floor_));
  out.u64(layers.size());
  for (const LayerState& layer : layers) {
    layer.window.write(out);
    layer.compressor.write(out);
    layer.index.write(out);
  }
  streams.write(out);
}

bool SequenceState::read(ByteReader& in) {
  length_ = static_cast<std::int64_t>(in.u64());
  mtp_length_ = static_cast<std::int64_t>(in.u64());
  rollback_floor_ = static_cast<std::int64_t>(in.u64());
  // More than any model's context, and little enough to reckon with.
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  const bool counts = length_ >= 0 && length_ <= kMostTokens && mtp_length_ >= 0 &&
                      mtp_length_ <= length_ && rollback_floor_ >= 0 && rollback_floor_ <= length_;
  if (in.u64() != layers.size() || !in.ok() || !counts || (!has_mtp_ && mtp_length_ != 0)) {
    return false;
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::int64_t length = is_mtp(i) ? mtp_length_ : length_;
    const std::int64_t shortest =
        is_mtp(i) ? std::min(mtp_length_, rollback_floor_ - 1) : rollback_floor_;
    LayerState& layer = layers[i];
    if (!layer.window.read(in, std::max<std::int64_t>(0, shortest - window_ + 1), length) ||
        !layer.compressor.read(in, length, shortest) || !layer.index.read(in, length, shortest)) {
      return false;
    }
  }
  // Which streams are still here is the MTP block's affair: it asks before it reads.
  const std::int64_t stream_rows = has_mtp_ ? length_ : 0;
  return streams.read(in, stream_rows, stream_rows);
}

bool SequenceState::same_as(const SequenceState& other) const {
  if (length_ != other.length_ || mtp_length_ != other.mtp_length_ ||
      layers.size() != other.layers.size()) {
    return false;
  }
  const std::int64_t floor = std::max(rollback_floor_, other.rollback_floor_);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerState& a = layers[i];
    const LayerState& b = other.layers[i];
    const std::int64_t shortest = is_mtp(i) ? std::min(mtp_length_, floor - 1) : floor;
    if (!same_rows(a.window, b.window, shortest - window_ + 1)) return false;
    if (!a.compressor.same_as(b.compressor, shortest)) return false;
    if (!a.index.same_as(b.index, shortest)) return false;
  }
  return same_rows(streams, other.streams, std::max(streams.first(), other.streams.first()));
}

}  // namespace ingot::reference
