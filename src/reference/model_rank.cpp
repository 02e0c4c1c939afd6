#include "src/reference/model_rank.hpp"

#include <algorithm>
#include <cstddef>

#include "src/reference/kernels.hpp"
#include "src/reference/layer_attention.hpp"
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
    pass.batch.add_sequence(mtp ? state.mtp_length() : state.length(), std::ssize(sequence.tokens));
    pass.tokens.insert(pass.tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    pass.states.push_back(&state);
  }
  pass.batch.make_angles(plain_frequencies_, compress_frequencies_);
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
  std::vector<float> streams(pass.batch.rows() * hc * hidden);
  for (std::size_t i = 0; i < pass.batch.rows() * hc; ++i) {
    std::copy_n(&embedded[i / hc * hidden], hidden, &streams[i * hidden]);
  }
  for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    run_layer(weights_.layers[layer], layer, pass, streams);
  }
  auto row = streams.begin();
  for (std::size_t s = 0; s < pass.states.size(); ++s) {
    if (weights_.mtp) {
      const auto kept = pass.states[s]->streams.append(pass.batch.counts()[s]);
      std::transform(row, row + std::ssize(kept), kept.begin(), bf16_bits);
      row += std::ssize(kept);
    }
    pass.states[s]->advance(pass.batch.counts()[s]);
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

  std::vector<float> h(pass.batch.rows() * hc * hidden);
  const std::int64_t first = pass.batch.positions()[0];
  const auto kept = state.streams.rows(first, first + pass.batch.counts()[0]);
  convert_bf16(kept.data(), static_cast<int>(kept.size()), h.data());
  rms_norm(pool_, h, mtp.hnorm, config_.rms_norm_eps);
  std::vector<float> streams(h.size());
  linear_bf16(pool_, mtp.h_proj, act_quantized(pool_, h, config_.hidden_size), streams);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const float* joined = &e_projected[i / (hc * hidden) * hidden];
    streams[i] = bf16_round(joined[i % hidden] + streams[i]);
  }

  run_layer(mtp.layer, weights_.layers.size(), pass, streams);
  state.advance_mtp(pass.batch.counts()[0]);
  state.forget();
  write_logits({&rows, 1}, streams, mtp.hc_head, mtp.norm);
}

void ModelRank::run_layer(const LayerWeights& weights, std::size_t layer, const Pass& pass,
                          std::span<float> streams) {
  std::vector<float> x(pass.batch.rows() * size(config_.hidden_size));
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
  std::vector<LayerState*> states;
  for (SequenceState* state : pass.states)
    states.push_back(&state->layers[layer]);
  std::vector<float> o(pass.batch.rows() * size(weights.attention.heads()) *
                       size(config_.head_dim));
  layer_attention(pool_, config_, weights, pass.batch,
                  weights.ratio == 0 ? plain_frequencies_ : compress_frequencies_, states, x, o);
  output_projection(pool_, config_, weights.attention, o, y);
  group_.all_reduce_sum(tp_rank_, y);
  round_bf16(y);
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
