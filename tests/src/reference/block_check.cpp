#include "tests/src/reference/block_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/reference/layer_attention.hpp"
#include "src/reference/linear.hpp"
#include "src/reference/numerics.hpp"
#include "src/reference/rms_norm.hpp"

namespace ingot::test {
namespace {

using namespace reference;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr double kFewFp4Flips = 2e-2;  // one value in some thousand, a third of its size away
constexpr double kNearTie = 1e-3;      // of the score range

/// One layer of a dump, with what its checks share.
class LayerCheck {
 public:
  LayerCheck(const OracleDump& dump, const Checkpoint& checkpoint, const ModelWeights& weights,
             ThreadPool& pool, const std::string& layer)
      : dump_(dump),
        config_(checkpoint.config()),
        model_(weights),
        mtp_(layer == "mtp.0"),
        weights_(mtp_ ? weights.mtp->layer : weights.layers[index_of(layer)]),
        pool_(pool),
        layer_(layer) {
    const std::int64_t count = tensor("attn_in").rows();
    for (const std::int64_t row : dump.rows()) {
      if (row < count) rows_.push_back(row);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      tokens_.push_back(dump.tokens()[static_cast<std::size_t>(mtp_ ? i + 1 : i)]);
    }
  }

  LayerErrors run() {
    attention();
    index();
    experts();
    hyper_connections();
    return std::move(errors_);
  }

 private:
  static std::size_t index_of(const std::string& layer) {
    return std::stoul(layer.substr(layer.find('.') + 1));
  }

  const DumpTensor& tensor(const std::string& what) const { return dump_.at(layer_ + "." + what); }
  std::size_t hidden() const { return static_cast<std::size_t>(config_.hidden_size); }
  std::size_t hc() const { return static_cast<std::size_t>(config_.hc_mult); }

  /// The rows of `all` (every position) that the dump's per-token tensors hold.
  std::vector<float> at_rows(std::span<const float> all, std::size_t width) const {
    std::vector<float> chosen;
    for (const std::int64_t row : rows_) {
      const auto part = all.subspan(static_cast<std::size_t>(row) * width, width);
      chosen.insert(chosen.end(), part.begin(), part.end());
    }
    return chosen;
  }

  void compare(const std::string& what, std::span<const float> got, double limit,
               double worst_limit = kNoLimit) {
    const DumpTensor& want = tensor(what);
    BlockError error{layer_ + "." + what, 0, 0, limit, worst_limit};
    if (got.size() != want.values.size()) {
      throw std::runtime_error(fmt::format("{}: {} values made, {} in the dump", error.name,
                                           got.size(), want.values.size()));
    }
    double difference = 0;
    double norm = 0;
    const std::size_t width = want.width();
    for (std::size_t r = 0; r < got.size() / width; ++r) {
      double row_difference = 0;
      double row_norm = 0;
      for (std::size_t i = r * width; i < (r + 1) * width; ++i) {
        const double b = want.values[i];
        row_difference += (got[i] - b) * (got[i] - b);
        row_norm += b * b;
      }
      difference += row_difference;
      norm += row_norm;
      error.worst = std::max(error.worst, std::sqrt(row_difference / row_norm));
    }
    error.all = std::sqrt(difference / norm);
    errors_.blocks.push_back(error);
  }

  void attention() {
    const DumpTensor& x = tensor("attn_in");
    const auto rows = static_cast<std::size_t>(x.rows());
    const AttentionWeights& attn = weights_.attention;
    const auto heads_width = static_cast<std::size_t>(config_.num_heads * config_.head_dim);
    frequencies_ = rope_frequencies(config_, weights_.ratio);
    RowBatch batch;
    batch.add_sequence(0, x.rows());
    batch.make_angles(rope_frequencies(config_, 0), rope_frequencies(config_, 4));

    const std::vector<float> x_quantized = act_quantized(pool_, x.values, config_.hidden_size);
    std::vector<float> qr(rows * static_cast<std::size_t>(config_.q_lora_rank));
    query_latents(pool_, config_, attn, x_quantized, qr);
    qr_quantized_ = act_quantized(pool_, qr, config_.q_lora_rank);
    std::vector<float> q(rows * heads_width);
    queries(pool_, config_, attn, qr_quantized_, batch.angles(weights_.ratio), q);
    compare("q", at_rows(q, heads_width), 1e-3);

    const auto head_dim = static_cast<std::size_t>(config_.head_dim);
    std::vector<float> kv(rows * head_dim);
    kv_entries(pool_, config_, attn, x_quantized, batch.angles(weights_.ratio), kv);
    compare("kv", at_rows(kv, head_dim), 1e-3);

    state_.window = RowHistory<std::uint16_t>(config_.head_dim);
    if (weights_.compressor) state_.compressor = CompressorState(*weights_.compressor);
    if (weights_.indexer) state_.index = CompressorState(weights_.indexer->compressor);
    std::vector<float> layer_o(q.size());
    LayerState* const states[] = {&state_};
    layer_attention(pool_, config_, weights_, batch, frequencies_, states, x.values, layer_o);
    attend(q, at_rows(layer_o, heads_width), batch.angles(weights_.ratio));
    if (weights_.compressor) compare("compressed", pool_values(state_.compressor), 1e-3);

    // The projection on the oracle's own o.
    std::vector<float> out(rows_.size() * hidden());
    output_projection(pool_, config_, attn, tensor("o").values, out);
    std::ranges::transform(out, out.begin(), bf16_round);
    compare("attn_out", out, 1.5e-2, 5e-2);
  }

  /// Core attention over the blocks that the oracle chose; and the layer's own attention, which is
  /// the same to the bit wherever it chose the same blocks.
  void attend(std::span<const float> q, std::span<const float> layer_o, const RopeAngles& angles) {
    const auto dim = static_cast<std::size_t>(config_.head_dim);
    const auto width = static_cast<std::size_t>(config_.num_heads) * dim;
    ChoiceError same{layer_ + ".o"};
    std::vector<float> o(rows_.size() * width);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const auto position = static_cast<std::size_t>(rows_[r]);
      std::vector<int> picks;
      if (weights_.indexer) picks = choice_of(tensor("index_picks"), r);
      std::vector<float> keys;
      gather_keys(config_, weights_.ratio, state_, rows_[r], weights_.indexer ? &picks : nullptr,
                  keys);
      const auto out = std::span(o).subspan(r * width, width);
      core_attention(q.subspan(position * width, width), keys, weights_.attention.sink,
                     config_.head_dim, out);
      for (std::size_t h = 0; h < width / dim; ++h) {
        angles.rotate_back(position, out.subspan(h * dim, dim));
      }
      ++same.rows;
      if (!std::ranges::equal(out, layer_o.subspan(r * width, width))) ++same.near_ties;
    }
    compare("o", o, 3e-3);
    // A block whose FP4 key came out otherwise may win or lose a place, seldom.
    if (same.near_ties > (weights_.indexer ? same.rows / 20 : 0)) same.different = same.near_ties;
    errors_.choices.push_back(same);
  }

  /// FP4 values: a value between two of them may round to the other one, so values are equal but
  /// for few, and those are one step away.
  void compare_fp4(const std::string& what, std::span<const float> got) {
    compare(what, got, kFewFp4Flips);
    const DumpTensor& want = tensor(what);
    ChoiceError flips{layer_ + "." + what + " values"};
    for (std::size_t i = 0; i < got.size(); ++i) {
      ++flips.rows;
      if (got[i] != want.values[i]) ++flips.near_ties;
    }
    if (flips.near_ties > flips.rows / 1000) flips.different = flips.near_ties;
    errors_.choices.push_back(flips);
  }

  static std::vector<float> pool_values(const CompressorState& state) {
    std::vector<float> values(state.pool().size());
    std::ranges::transform(state.pool(), values.begin(), bf16_value);
    return values;
  }

  void index() {
    if (!weights_.indexer) return;
    compare_fp4("index_k", pool_values(state_.index));
    const auto heads = static_cast<std::size_t>(config_.index_heads);
    const auto width = heads * static_cast<std::size_t>(config_.index_head_dim);
    const auto q_lora = static_cast<std::size_t>(config_.q_lora_rank);
    std::vector<float> q(rows_.size() * width);
    std::vector<float> head_weights(rows_.size() * heads);
    const RopeAngles angles(frequencies_, rows_);
    const std::vector<float> x = at_rows(tensor("attn_in").values, hidden());
    index_queries(pool_, config_, *weights_.indexer, at_rows(qr_quantized_, q_lora), x, angles, q,
                  head_weights);
    compare_fp4("index_q", q);

    const DumpTensor& keys = tensor("index_k");
    std::vector<std::uint16_t> key_bits(keys.values.size());
    std::ranges::transform(keys.values, key_bits.begin(), bf16_bits);
    const DumpTensor& want = tensor("index_score");
    std::vector<float> scores(want.values.size(), 0.0F);
    ChoiceError choice{layer_ + ".index_picks"};
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const auto visible = static_cast<std::size_t>((rows_[r] + 1) / 4);
      const auto row = std::span(scores).subspan(r * want.width(), visible);
      const std::span<const float> oracle_q(tensor("index_q").row(static_cast<std::int64_t>(r)),
                                            width);
      index_scores(config_, oracle_q, std::span(head_weights).subspan(r * heads, heads),
                   std::span(key_bits).first(visible * keys.width()), row);
      compare_choice(choice, tensor("index_picks"), r, top_indices(row, config_.index_topk), row);
    }
    // −inf marks what is not visible: compare what is.
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (std::isinf(want.values[i])) continue;
      difference += std::pow(scores[i] - want.values[i], 2);
      norm += std::pow(want.values[i], 2);
    }
    errors_.blocks.push_back(
        {layer_ + ".index_score", std::sqrt(difference / norm), 0, 1e-3, kNoLimit});
    errors_.choices.push_back(choice);
  }

  /// The used slots of a row of ids; −1 marks an unused one.
  static std::vector<int> choice_of(const DumpTensor& ids, std::size_t row) {
    std::vector<int> choice;
    for (std::size_t i = 0; i < ids.width(); ++i) {
      const float id = ids.row(static_cast<std::int64_t>(row))[i];
      if (id >= 0) choice.push_back(static_cast<int>(id));
    }
    return choice;
  }

  /// @param scores  of every candidate, ours
  void compare_choice(ChoiceError& error, const DumpTensor& wanted, std::size_t row,
                      std::vector<int> got, std::span<const float> scores) const {
    std::vector<int> want = choice_of(wanted, row);
    std::ranges::sort(got);
    std::ranges::sort(want);
    ++error.rows;
    if (got == want) return;
    std::vector<float> sorted(scores.begin(), scores.end());
    std::ranges::sort(sorted, std::greater());
    const std::size_t taken = got.size();
    const double gap = taken < sorted.size() ? sorted[taken - 1] - sorted[taken] : kNoLimit;
    const bool tie = gap < kNearTie * static_cast<double>(sorted.front() - sorted.back());
    ++(tie ? error.near_ties : error.different);
  }

  void experts() {
    const DumpTensor& z = tensor("ffn_in");
    const std::size_t rows = rows_.size();
    const auto chosen = static_cast<std::size_t>(config_.experts_per_token);
    std::vector<TokenId> tokens;
    for (const std::int64_t row : rows_)
      tokens.push_back(tokens_[static_cast<std::size_t>(row)]);
    const Routing routing = route(pool_, config_, weights_.moe, z.values, tokens);
    compare("expert_weights", routing.weights, 1e-3);
    ChoiceError choice{layer_ + ".experts"};
    for (std::size_t r = 0; r < rows; ++r) {
      const int* experts = &routing.experts[r * chosen];
      compare_choice(choice, tensor("experts"), r, {experts, experts + chosen},
                     router_keys(z.values, r));
    }
    errors_.choices.push_back(choice);

    std::vector<float> outputs(rows * (chosen + 1) * hidden());
    expert_outputs(pool_, config_, weights_.moe, routing,
                   act_quantized(pool_, z.values, config_.hidden_size), outputs);
    std::vector<float> y(rows * hidden());
    combine_experts(pool_, config_, routing, outputs, y);
    compare("ffn_out", y, 1.5e-2, 5e-2);
  }

  /// Scores plus bias, for the gap between the chosen and the others.
  std::vector<float> router_keys(std::span<const float> z, std::size_t row) const {
    std::vector<float> keys(static_cast<std::size_t>(config_.num_experts));
    linear_f32(pool_, weights_.moe.gate, z.subspan(row * hidden(), hidden()), keys);
    for (std::size_t e = 0; e < keys.size(); ++e) {
      keys[e] = std::sqrt(std::log1p(std::exp(keys[e])));
      if (!weights_.moe.bias.empty()) keys[e] += weights_.moe.bias[e];
    }
    return keys;
  }

  /// The streams in front of the layer at the compared rows; empty where the dump lacks them.
  std::vector<float> streams_before() const {
    if (mtp_) return {};  // joined from the hidden state and the next token: whole-block test
    const std::size_t index = index_of(layer_);
    std::vector<float> streams;
    if (index > 0) return dump_.at(fmt::format("layers.{}.out", index - 1)).values;
    for (const std::int64_t row : rows_) {
      std::vector<float> embedded(hidden());
      dequantize_rows(model_.embed, tokens_[static_cast<std::size_t>(row)], 1, embedded.data());
      for (std::size_t s = 0; s < hc(); ++s) {
        streams.insert(streams.end(), embedded.begin(), embedded.end());
      }
    }
    return streams;
  }

  void hyper_connections() {
    std::vector<float> streams = streams_before();
    if (streams.empty()) return;
    sublayer("attn", weights_.hc_attn, weights_.attn_norm, streams);
    // Behind the attention, by the oracle's own coefficients and output.
    hyper_expand(pool_, config_, {{}, tensor("attn_post").values, tensor("attn_comb").values},
                 tensor("attn_out").values, streams);
    sublayer("ffn", weights_.hc_ffn, weights_.ffn_norm, streams);
    hyper_expand(pool_, config_, {{}, tensor("ffn_post").values, tensor("ffn_comb").values},
                 tensor("ffn_out").values, streams);
    compare("out", streams, 1e-3);
  }

  void sublayer(const std::string& name, const HyperConnectionWeights& hyper,
                std::span<const float> norm, std::span<const float> streams) {
    const HyperMix mix = hyper_mix(pool_, config_, hyper, streams);
    compare(name + "_post", mix.post, 1e-3);
    compare(name + "_comb", mix.comb, 1e-3);
    std::vector<float> x(streams.size() / hc());
    hyper_collapse(pool_, config_, mix.pre, streams, x);
    rms_norm(pool_, x, norm, config_.rms_norm_eps);
    if (name == "attn") {
      compare_rows_of(name + "_in", x);
    } else {
      compare(name + "_in", x, 1e-3);
    }
  }

  /// `attn_in` holds every row of the prompt.
  void compare_rows_of(const std::string& what, std::span<const float> got) {
    const std::vector<float> want = at_rows(tensor(what).values, hidden());
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += std::pow(got[i] - want[i], 2);
      norm += std::pow(want[i], 2);
    }
    errors_.blocks.push_back(
        {layer_ + "." + what, std::sqrt(difference / norm), 0, 1e-3, kNoLimit});
  }

  const OracleDump& dump_;
  const ModelConfig& config_;
  const ModelWeights& model_;
  bool mtp_;
  const LayerWeights& weights_;
  ThreadPool& pool_;
  std::string layer_;
  std::vector<std::int64_t> rows_;  ///< compared positions
  std::vector<TokenId> tokens_;     ///< of every position, as the layer's MoE sees them
  std::vector<float> frequencies_;
  std::vector<float> qr_quantized_;
  LayerState state_;
  LayerErrors errors_;
};

}  // namespace

LayerErrors check_layer(const OracleDump& dump, const Checkpoint& checkpoint,
                        const ModelWeights& weights, ThreadPool& pool, const std::string& layer) {
  return LayerCheck(dump, checkpoint, weights, pool, layer).run();
}

std::vector<std::string> layers_in(const OracleDump& dump, const ModelConfig& config) {
  std::vector<std::string> layers;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const std::string name = fmt::format("layers.{}", layer);
    if (dump.find(name + ".attn_in") != nullptr) layers.push_back(name);
  }
  if (dump.find("mtp.0.attn_in") != nullptr) layers.emplace_back("mtp.0");
  return layers;
}

std::string error_table(const std::string& model, const std::vector<LayerErrors>& layers) {
  std::string table;
  for (const LayerErrors& layer : layers) {
    for (const BlockError& error : layer.blocks) {
      table += fmt::format("{:8} {:24} {:9.2e} (limit {:.1e})  worst row {:9.2e}\n", model,
                           error.name, error.all, error.limit, error.worst);
    }
    for (const ChoiceError& error : layer.choices) {
      table += fmt::format("{:8} {:24} {} rows: {} differ, {} more at near ties\n", model,
                           error.name, error.rows, error.different, error.near_ties);
    }
  }
  return table;
}

}  // namespace ingot::test
