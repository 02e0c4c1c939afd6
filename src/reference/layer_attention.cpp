#include "src/reference/layer_attention.hpp"

#include <algorithm>
#include <cstddef>

#include "src/reference/kernels.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/numerics.hpp"

namespace ingot::reference {
namespace {

using Picks = std::vector<std::vector<int>>;  // [rows] chosen blocks, ascending

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

/// What every step below works on.
struct Layer {
  ThreadPool& pool;
  const ModelConfig& config;
  const LayerWeights& weights;
  const RowBatch& batch;
  std::span<const float> frequencies;
  std::span<LayerState* const> states;

  const RopeAngles& angles() const { return batch.angles(weights.ratio); }
};

void append_window(const Layer& layer, std::span<const float> x_quantized) {
  std::vector<float> kv(layer.batch.rows() * size(layer.config.head_dim));
  kv_entries(layer.pool, layer.config, layer.weights.attention, x_quantized, layer.angles(), kv);
  auto entry = kv.begin();
  for (std::size_t s = 0; s < layer.states.size(); ++s) {
    const auto kept = layer.states[s]->window.append(layer.batch.counts()[s]);
    std::transform(entry, entry + std::ssize(kept), kept.begin(), bf16_bits);
    entry += std::ssize(kept);
  }
}

void append_compressor(const Layer& layer, const CompressorWeights& weights,
                       std::span<const float> x, CompressorState LayerState::*state) {
  const std::size_t width = size(weights.row_width());
  std::vector<float> k(layer.batch.rows() * width);
  std::vector<float> s(k.size());
  compressor_rows(layer.pool, weights, x, layer.batch.positions(), k, s);
  std::size_t at = 0;
  for (std::size_t i = 0; i < layer.states.size(); ++i) {
    const std::size_t count = static_cast<std::size_t>(layer.batch.counts()[i]) * width;
    (layer.states[i]->*state)
        .append(layer.pool, layer.config, weights, layer.frequencies,
                std::span(k).subspan(at, count), std::span(s).subspan(at, count));
    at += count;
  }
}

/// Visible blocks to score, in pieces that threads share.
struct ScoreTask {
  std::size_t row;
  std::int64_t begin, end;
};

Picks choose_blocks(const Layer& layer, std::span<const float> qr_quantized,
                    std::span<const float> x) {
  constexpr std::int64_t kTaskBlocks = 1024;
  const ModelConfig& config = layer.config;
  const std::size_t heads = size(config.index_heads);
  const std::size_t dim = size(config.index_head_dim);
  const std::size_t rows = layer.batch.rows();
  std::vector<ScoreTask> tasks;
  std::vector<std::vector<float>> scores(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int64_t visible = (layer.batch.positions()[r] + 1) / layer.weights.ratio;
    scores[r].resize(static_cast<std::size_t>(visible));
    if (visible <= config.index_topk) continue;  // all are taken, whatever their scores
    for (std::int64_t begin = 0; begin < visible; begin += kTaskBlocks) {
      tasks.push_back({r, begin, std::min(begin + kTaskBlocks, visible)});
    }
  }
  if (!tasks.empty()) {
    std::vector<float> q(rows * heads * dim);
    std::vector<float> head_weights(rows * heads);
    index_queries(layer.pool, config, *layer.weights.indexer, qr_quantized, x, layer.angles(), q,
                  head_weights);
    layer.pool.parallel_for(std::ssize(tasks), 4, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        const ScoreTask& task = tasks[static_cast<std::size_t>(t)];
        const auto begin = static_cast<std::size_t>(task.begin);
        const auto count = static_cast<std::size_t>(task.end - task.begin);
        const auto keys = layer.states[layer.batch.sequence_of(task.row)]->index.pool();
        index_scores(config, std::span(q).subspan(task.row * heads * dim, heads * dim),
                     std::span(head_weights).subspan(task.row * heads, heads),
                     keys.subspan(begin * dim, count * dim),
                     std::span(scores[task.row]).subspan(begin, count));
      }
    });
  }
  Picks picks(rows);
  for (std::size_t r = 0; r < rows; ++r)
    picks[r] = top_indices(scores[r], config.index_topk);
  return picks;
}

void attend(const Layer& layer, std::span<const float> q, const Picks& picks, std::span<float> o) {
  const std::span<const float> sink = layer.weights.attention.sink;
  const std::size_t dim = size(layer.config.head_dim);
  const std::size_t heads = sink.size();
  const std::size_t rows = layer.batch.rows();
  // Tasks are eight heads of one row, so that a single row of a large model keeps all threads busy.
  const std::size_t task_heads = std::min<std::size_t>(8, heads);
  const std::size_t row_tasks = (heads + task_heads - 1) / task_heads;
  const auto count = static_cast<std::int64_t>(rows * row_tasks);
  layer.pool.parallel_for(count, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> keys;
    std::size_t keys_of = rows;
    for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(last); ++t) {
      const std::size_t r = t / row_tasks;
      if (keys_of != r) {
        gather_keys(layer.config, layer.weights.ratio, *layer.states[layer.batch.sequence_of(r)],
                    layer.batch.positions()[r], picks.empty() ? nullptr : &picks[r], keys);
        keys_of = r;
      }
      const std::size_t head = t % row_tasks * task_heads;
      const std::size_t head_count = std::min(task_heads, heads - head);
      const std::size_t at = (r * heads + head) * dim;
      const auto out = o.subspan(at, head_count * dim);
      core_attention(q.subspan(at, head_count * dim), keys, sink.subspan(head, head_count),
                     layer.config.head_dim, out);
      for (std::size_t h = 0; h < head_count; ++h) {
        layer.angles().rotate_back(r, out.subspan(h * dim, dim));
      }
    }
  });
}

}  // namespace

void gather_keys(const ModelConfig& config, int ratio, const LayerState& state,
                 std::int64_t position, const std::vector<int>* picks, std::vector<float>& keys) {
  const std::size_t dim = size(config.head_dim);
  const auto raw = state.window.rows(
      std::max<std::int64_t>(0, position - config.sliding_window + 1), position + 1);
  const auto pool = state.compressor.pool();
  const std::int64_t visible = ratio == 0 ? 0 : (position + 1) / ratio;
  const std::size_t blocks = picks != nullptr ? picks->size() : static_cast<std::size_t>(visible);
  keys.resize(raw.size() + blocks * dim);
  convert_bf16(raw.data(), static_cast<int>(raw.size()), keys.data());
  for (std::size_t j = 0; j < blocks; ++j) {
    const std::size_t block = picks != nullptr ? static_cast<std::size_t>((*picks)[j]) : j;
    convert_bf16(&pool[block * dim], config.head_dim, &keys[raw.size() + j * dim]);
  }
}

void layer_attention(ThreadPool& pool, const ModelConfig& config, const LayerWeights& weights,
                     const RowBatch& batch, std::span<const float> frequencies,
                     std::span<LayerState* const> states, std::span<const float> x,
                     std::span<float> o) {
  const Layer layer{pool, config, weights, batch, frequencies, states};
  const std::vector<float> x_quantized = act_quantized(pool, x, config.hidden_size);
  std::vector<float> qr(batch.rows() * size(config.q_lora_rank));
  query_latents(pool, config, weights.attention, x_quantized, qr);
  const std::vector<float> qr_quantized = act_quantized(pool, qr, config.q_lora_rank);
  std::vector<float> q(o.size());
  queries(pool, config, weights.attention, qr_quantized, layer.angles(), q);

  append_window(layer, x_quantized);
  if (weights.compressor) {
    append_compressor(layer, *weights.compressor, x, &LayerState::compressor);
  }
  Picks picks;
  if (weights.indexer) {
    append_compressor(layer, weights.indexer->compressor, x, &LayerState::index);
    picks = choose_blocks(layer, qr_quantized, x);
  }
  attend(layer, q, picks, o);
}

}  // namespace ingot::reference
