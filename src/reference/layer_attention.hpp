#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/reference/model_weights.hpp"
#include "src/reference/row_batch.hpp"
#include "src/reference/sequence_state.hpp"
#include "src/reference/thread_pool.hpp"

/// A layer's attention over the sequences' states: what the blocks of attention, compressor and
/// indexer are composed to. Source: model specification sections 3.6 to 3.10.
namespace ingot::reference {

/// Appends the rows to the layer's states and attends, up to the output projection.
/// @param frequencies  of the layer's ratio
/// @param states       one per sequence of the batch, at the position of its first row
/// @param x            [rows, hidden] bf16 values (after attn_norm)
/// @param o            [rows, heads of the rank, head_dim] rotated back, bf16 values
void layer_attention(ThreadPool& pool, const ModelConfig& config, const LayerWeights& weights,
                     const RowBatch& batch, std::span<const float> frequencies,
                     std::span<LayerState* const> states, std::span<const float> x,
                     std::span<float> o);

/// The keys that a query at `position` attends to, oldest first: the raw window, then compressed
/// entries. Section 3.7.
/// @param picks  chosen blocks in a layer with an indexer, else nullptr: all visible blocks
/// @param keys   [candidates, head_dim]
void gather_keys(const ModelConfig& config, int ratio, const LayerState& state,
                 std::int64_t position, const std::vector<int>* picks, std::vector<float>& keys);

}  // namespace ingot::reference
