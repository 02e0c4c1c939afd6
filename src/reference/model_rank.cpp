#include "src/reference/model_rank.hpp"

#include <algorithm>
#include <cstddef>

#include "src/reference/kernels.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rms_norm.hpp"

namespace ingot::reference {
namespace {

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

ModelRank::ModelRank(const Checkpoint& checkpoint, TpGroup& group, int tp_rank, int threads)
    : config_(checkpoint.config()),
      group_(group),
      tp_rank_(tp_rank),
      pool_(threads),
      weights_(model_weights(checkpoint, tp_rank, group.size())),
      plain_frequencies_(rope_frequencies(config_, 0)),
      compress_frequencies_(rope_frequencies(config_, 4)) {}

ModelRank::Pass ModelRank::make_pass(std::span<const SequenceRows> rows, bool mtp) const {
  Pass pass;
  for (const SequenceRows& sequence : rows) {
    SequenceState& state = sequence.states[size(tp_rank_)];
    std::int64_t position = mtp ? state.mtp_length() : state.length();
    for (const TokenId token : sequence.tokens) {
      pass.sequence_of.push_back(pass.states.size());
      pass.positions.push_back(position++);
      pass.tokens.push_back(token);
    }
    pass.states.push_back(&state);
    pass.row_counts.push_back(static_cast<std::int64_t>(sequence.tokens.size()));
  }
  pass.plain_angles = RopeAngles(plain_frequencies_, pass.positions);
  pass.compress_angles = RopeAngles(compress_frequencies_, pass.positions);
  return pass;
}

std::vector<float> ModelRank::embed(std::span<const TokenId> tokens) {
  const std::size_t hidden = size(config_.hidden_size);
  std::vector<float> rows(tokens.size() * hidden);
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    const std::int64_t local = tokens[r] - weights_.embed.first_row;
    if (local < 0 || local >= weights_.embed.rows) continue;  // another rank's: 0 in the sum
    dequantize_rows(weights_.embed, local, 1, &rows[r * hidden]);
  }
  group_.all_reduce_sum(tp_rank_, rows);
  return rows;
}

void ModelRank::forward(std::span<const SequenceRows> rows) {
  const Pass pass = make_pass(rows, false);
  const std::size_t hidden = size(config_.hidden_size);
  const std::size_t hc = size(config_.hc_mult);
  const std::vector<float> embedded = embed(pass.tokens);
  std::vector<float> streams(pass.rows() * hc * hidden);
  for (std::size_t i = 0; i < pass.rows() * hc; ++i) {
    std::copy_n(&embedded[i / hc * hidden], hidden, &streams[i * hidden]);
  }
  for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    run_layer(weights_.layers[layer], layer, pass, streams);
  }
  auto row = streams.begin();
  for (std::size_t s = 0; s < pass.states.size(); ++s) {
    if (weights_.mtp) {
      const auto kept = pass.states[s]->streams.append(pass.row_counts[s]);
      std::transform(row, row + std::ssize(kept), kept.begin(), bf16_bits);
      row += std::ssize(kept);
    }
    pass.states[s]->advance(pass.row_counts[s]);
    pass.states[s]->forget();
  }
  write_logits(rows, streams, weights_.hc_head, weights_.norm);
}

void ModelRank::mtp_forward(const SequenceRows& rows) {
  const MtpWeights& mtp = *weights_.mtp;
  const Pass pass = make_pass({&rows, 1}, true);
  SequenceState& state = *pass.states[0];
  const std::size_t hidden = size(config_.hidden_size);
  const std::size_t hc = size(config_.hc_mult);

  std::vector<float> e = embed(pass.tokens);
  rms_norm(pool_, e, mtp.enorm, config_.rms_norm_eps);
  std::vector<float> e_projected(e.size());
  linear_bf16(pool_, mtp.e_proj, act_quantized(pool_, e, config_.hidden_size), e_projected);

  std::vector<float> h(pass.rows() * hc * hidden);
  const std::int64_t first = pass.positions.front();
  const auto kept = state.streams.rows(first, first + pass.row_counts[0]);
  convert_bf16(kept.data(), static_cast<int>(kept.size()), h.data());
  rms_norm(pool_, h, mtp.hnorm, config_.rms_norm_eps);
  std::vector<float> streams(h.size());
  linear_bf16(pool_, mtp.h_proj, act_quantized(pool_, h, config_.hidden_size), streams);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const float* joined = &e_projected[i / (hc * hidden) * hidden];
    streams[i] = bf16_round(joined[i % hidden] + streams[i]);
  }

  run_layer(mtp.layer, weights_.layers.size(), pass, streams);
  state.advance_mtp(pass.row_counts[0]);
  state.forget();
  write_logits({&rows, 1}, streams, mtp.hc_head, mtp.norm);
}

void ModelRank::run_layer(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                          std::span<float> streams) {
  std::vector<float> x(pass.rows() * size(config_.hidden_size));
  std::vector<float> y(x.size());
  HyperMix mix = hyper_mix(pool_, config_, weights.hc_attn, streams);
  hyper_collapse(pool_, config_, mix.pre, streams, x);
  rms_norm(pool_, x, weights.attn_norm, config_.rms_norm_eps);
  attention(weights, layer, pass, x, y);
  hyper_expand(pool_, config_, mix, y, streams);

  mix = hyper_mix(pool_, config_, weights.hc_ffn, streams);
  hyper_collapse(pool_, config_, mix.pre, streams, x);
  rms_norm(pool_, x, weights.ffn_norm, config_.rms_norm_eps);
  moe(weights.moe, pass, x, y);
  hyper_expand(pool_, config_, mix, y, streams);
}

void ModelRank::attention(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                          std::span<const float> x, std::span<float> y) {
  const AttentionWeights& attn = weights.attention;
  const RopeAngles& angles = weights.ratio == 0 ? pass.plain_angles : pass.compress_angles;
  const std::vector<float> x_quantized = act_quantized(pool_, x, config_.hidden_size);
  std::vector<float> qr(pass.rows() * size(config_.q_lora_rank));
  query_latents(pool_, config_, attn, x_quantized, qr);
  const std::vector<float> qr_quantized = act_quantized(pool_, qr, config_.q_lora_rank);
  std::vector<float> q(pass.rows() * size(attn.heads()) * size(config_.head_dim));
  queries(pool_, config_, attn, qr_quantized, angles, q);

  std::vector<float> kv(pass.rows() * size(config_.head_dim));
  kv_entries(pool_, config_, attn, x_quantized, angles, kv);
  auto entry = kv.begin();
  for (std::size_t s = 0; s < pass.states.size(); ++s) {
    const auto kept = pass.states[s]->layers[layer].window.append(pass.row_counts[s]);
    std::transform(entry, entry + std::ssize(kept), kept.begin(), bf16_bits);
    entry += std::ssize(kept);
  }
  if (weights.compressor) compress(*weights.compressor, pass, x, layer, &LayerState::compressor);
  std::vector<std::vector<int>> picks;
  if (weights.indexer) {
    compress(weights.indexer->compressor, pass, x, layer, &LayerState::index);
    picks = choose_blocks(weights, layer, pass, qr_quantized, x, angles);
  }

  std::vector<float> o(q.size());
  attend(weights, layer, pass, q, picks, o);
  output_projection(pool_, config_, attn, o, y);
  group_.all_reduce_sum(tp_rank_, y);
  round_bf16(y);
}

void ModelRank::compress(const CompressorWeights& weights, const Pass& pass,
                         std::span<const float> x, std::size_t layer,
                         CompressorState LayerState::*state) {
  const std::size_t width = size(weights.row_width());
  std::vector<float> k(pass.rows() * width);
  std::vector<float> s(k.size());
  compressor_rows(pool_, weights, x, pass.positions, k, s);
  std::size_t at = 0;
  for (std::size_t i = 0; i < pass.states.size(); ++i) {
    const std::size_t count = static_cast<std::size_t>(pass.row_counts[i]) * width;
    (pass.states[i]->layers[layer].*state)
        .append(pool_, config_, weights, compress_frequencies_, std::span(k).subspan(at, count),
                std::span(s).subspan(at, count));
    at += count;
  }
}

std::vector<std::vector<int>> ModelRank::choose_blocks(const LayerWeights& weights,
                                                       std::size_t layer, const Pass& pass,
                                                       std::span<const float> qr_quantized,
                                                       std::span<const float> x,
                                                       const RopeAngles& angles) {
  constexpr std::int64_t kTaskBlocks = 1024;
  struct Task {
    std::size_t row;
    std::int64_t begin, end;  // blocks
  };
  const std::size_t heads = size(config_.index_heads);
  const std::size_t dim = size(config_.index_head_dim);
  std::vector<Task> tasks;
  std::vector<std::vector<float>> scores(pass.rows());
  std::vector<std::vector<int>> picks(pass.rows());
  for (std::size_t r = 0; r < pass.rows(); ++r) {
    const std::int64_t visible = (pass.positions[r] + 1) / weights.ratio;
    scores[r].resize(static_cast<std::size_t>(visible));
    if (visible <= config_.index_topk) continue;  // all are taken, whatever their scores
    for (std::int64_t begin = 0; begin < visible; begin += kTaskBlocks) {
      tasks.push_back({r, begin, std::min(begin + kTaskBlocks, visible)});
    }
  }
  if (!tasks.empty()) {
    std::vector<float> q(pass.rows() * heads * dim);
    std::vector<float> head_weights(pass.rows() * heads);
    index_queries(pool_, config_, *weights.indexer, qr_quantized, x, angles, q, head_weights);
    pool_.parallel_for(std::ssize(tasks), 4, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        const Task& task = tasks[static_cast<std::size_t>(t)];
        const auto begin = static_cast<std::size_t>(task.begin);
        const auto count = static_cast<std::size_t>(task.end - task.begin);
        const auto keys = pass.states[pass.sequence_of[task.row]]->layers[layer].index.pool();
        index_scores(config_, std::span(q).subspan(task.row * heads * dim, heads * dim),
                     std::span(head_weights).subspan(task.row * heads, heads),
                     keys.subspan(begin * dim, count * dim),
                     std::span(scores[task.row]).subspan(begin, count));
      }
    });
  }
  for (std::size_t r = 0; r < pass.rows(); ++r) {
    picks[r] = top_indices(scores[r], config_.index_topk);
  }
  return picks;
}

void ModelRank::attend(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                       std::span<const float> q, const std::vector<std::vector<int>>& picks,
                       std::span<float> o) {
  const AttentionWeights& attn = weights.attention;
  const RopeAngles& angles = weights.ratio == 0 ? pass.plain_angles : pass.compress_angles;
  const std::size_t dim = size(config_.head_dim);
  const std::size_t heads = size(attn.heads());
  // Tasks are eight heads of one row, so that a single row of a large model keeps all threads busy.
  const std::size_t task_heads = std::min<std::size_t>(8, heads);
  const std::size_t row_tasks = (heads + task_heads - 1) / task_heads;
  const auto count = static_cast<std::int64_t>(pass.rows() * row_tasks);
  pool_.parallel_for(count, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> keys;
    std::size_t keys_of = pass.rows();
    for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(last); ++t) {
      const std::size_t r = t / row_tasks;
      if (keys_of != r) {
        const LayerState& state = pass.states[pass.sequence_of[r]]->layers[layer];
        gather_keys(weights, state, pass.positions[r], picks.empty() ? nullptr : &picks[r], keys);
        keys_of = r;
      }
      const std::size_t head = t % row_tasks * task_heads;
      const std::size_t head_count = std::min(task_heads, heads - head);
      const std::size_t at = (r * heads + head) * dim;
      const auto out = o.subspan(at, head_count * dim);
      core_attention(q.subspan(at, head_count * dim), keys,
                     std::span(attn.sink).subspan(head, head_count), config_.head_dim, out);
      for (std::size_t h = 0; h < head_count; ++h) {
        angles.rotate_back(r, out.subspan(h * dim, dim));
      }
    }
  });
}

void ModelRank::gather_keys(const LayerWeights& weights, const LayerState& state,
                            std::int64_t position, const std::vector<int>* picks,
                            std::vector<float>& keys) const {
  const std::size_t dim = size(config_.head_dim);
  const auto raw = state.window.rows(
      std::max<std::int64_t>(0, position - config_.sliding_window + 1), position + 1);
  const auto pool = state.compressor.pool();
  const std::size_t blocks =
      picks != nullptr
          ? picks->size()
          : (weights.ratio == 0 ? 0 : static_cast<std::size_t>((position + 1) / weights.ratio));
  keys.resize(raw.size() + blocks * dim);
  convert_bf16(raw.data(), static_cast<int>(raw.size()), keys.data());
  for (std::size_t j = 0; j < blocks; ++j) {
    const std::size_t block = picks != nullptr ? static_cast<std::size_t>((*picks)[j]) : j;
    convert_bf16(&pool[block * dim], config_.head_dim, &keys[raw.size() + j * dim]);
  }
}

void ModelRank::moe(const MoeWeights& weights, const Pass& pass, std::span<const float> z,
                    std::span<float> y) {
  const Routing routing = route(pool_, config_, weights, z, pass.tokens);
  std::vector<float> outputs(z.size() * (size(config_.experts_per_token) + 1));
  expert_outputs(pool_, config_, weights, routing, act_quantized(pool_, z, config_.hidden_size),
                 outputs);
  group_.all_reduce_sum(tp_rank_, outputs);
  combine_experts(pool_, config_, routing, outputs, y);
}

void ModelRank::write_logits(std::span<const SequenceRows> rows, std::span<const float> streams,
                             const HyperConnectionWeights& hc_head, std::span<const float> norm) {
  const std::size_t vocab = size(config_.vocab_size);
  const std::size_t hidden = size(config_.hidden_size);
  const std::size_t width = size(config_.hc_mult) * hidden;
  std::vector<float> wanted;
  std::vector<float*> logits;
  std::size_t end = 0;
  for (const SequenceRows& sequence : rows) {
    end += sequence.tokens.size();
    const std::size_t count = sequence.logits.size() / vocab;
    const auto from = streams.subspan((end - count) * width, count * width);
    wanted.insert(wanted.end(), from.begin(), from.end());
    for (std::size_t i = 0; i < count; ++i) {
      // linear_rows writes from column 0 of the rank's share on.
      logits.push_back(&sequence.logits[i * vocab] + weights_.head.first_row);
    }
  }
  if (logits.empty()) return;
  std::vector<float> x(logits.size() * hidden);
  hyper_head(pool_, config_, hc_head, wanted, x);
  rms_norm(pool_, x, norm, config_.rms_norm_eps);
  std::vector<const float*> x_rows;
  for (std::size_t i = 0; i < logits.size(); ++i)
    x_rows.push_back(&x[i * hidden]);
  pool_.parallel_for(weights_.head.rows, linear_grain(weights_.head, std::ssize(logits)),
                     [&](std::int64_t begin, std::int64_t last) {
                       linear_rows(weights_.head, begin, last, x_rows, logits);
                     });
}

}  // namespace ingot::reference
