#include "src/executor/weight_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "kernel_templates/fp8_linear.args.h"
#include "kernel_templates/moe_decode.args.h"
#include "kernel_templates/moe_weight_tiles.hpp"

namespace ingot::executor {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr int kGateUpStrip = kernels::MOE_JOB_ROWS / 2;  // as many rows of gate as of up
constexpr int kDownStrip = kernels::MOE_JOB_ROWS;

/// The model with its first `layers` layers and its draft block.
ModelConfig first_layers(ModelConfig config, int layers) {
  if (layers <= 0 || layers >= config.num_layers) return config;
  auto& ratios = config.compress_ratios;
  ratios.erase(ratios.begin() + layers, ratios.begin() + config.num_layers);
  config.num_layers = layers;
  config.num_hash_layers = std::min(config.num_hash_layers, layers);
  return config;
}

void check_rank(const ModelConfig& config, const WeightOptions& options) {
  value_or_throw(check_tp_size(config, options.tp_size));
  if (options.tp_rank >= 0 && options.tp_rank < options.tp_size) return;
  throw EngineError(ErrorCode::invalid_argument,
                    fmt::format("placing the weights of rank {}: a group of {} has ranks 0 to {}",
                                options.tp_rank, options.tp_size, options.tp_size - 1));
}

/// Gives every array of the model its place, in the order of the calls.
class Placer {
 public:
  Placer(const WeightOptions& options, std::uint64_t base, WeightPlacement& placement)
      : options_(options), base_(base), placement_(placement) {
    for (TensorSpec& spec : tensor_table(placement.config)) {
      std::string name = spec.name;
      specs_.emplace(std::move(name), std::move(spec));
    }
  }

  void place_model() {
    WeightViews& views = placement_.views;
    views.embedding = bf16_matrix("embed.weight");
    views.first_token = static_cast<int>(part_of("embed.weight").range.row_begin);
    for (int i = 0; i < config().num_layers; ++i)
      views.layers.push_back(layer(fmt::format("layers.{}", i), i));
    views.norm = bf16_vector("norm.weight");
    views.hc_head = hyper_connection("hc_head");
    views.head = bf16_matrix("head.weight");
    if (config().num_mtp_layers > 0) views.draft = draft("mtp.0");
    views.plain_frequencies = frequencies(0);
    views.compress_frequencies = frequencies(4);
  }

 private:
  const ModelConfig& config() const { return placement_.config; }

  template <class T>
  const T* add(WeightPart part) {
    part.offset = placement_.bytes;
    placement_.bytes += (part.bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::uint64_t address = base_ + part.offset;
    placement_.parts.push_back(std::move(part));
    return reinterpret_cast<const T*>(address);
  }

  WeightPart part_of(const std::string& name) const {
    WeightPart part;
    part.tensor = specs_.at(name);
    part.range = rank_range(part.tensor, options_.tp_rank, options_.tp_size);
    part.bytes = static_cast<std::uint64_t>(range_bytes(part.range, part.tensor.dtype));
    return part;
  }

  void require_whole(const WeightPart& part, std::int64_t columns, int row_multiple,
                     int column_multiple) const {
    if (part.range.rows() % row_multiple == 0 && columns % column_multiple == 0) return;
    throw EngineError(
        ErrorCode::unsupported,
        fmt::format("placing {}: a rank of {} has {} x {} of it, and the kernels read blocks of "
                    "{} x {}; choose a smaller tensor-parallel size, or run this model on the CPU",
                    part.tensor.name, options_.tp_size, part.range.rows(), columns, row_multiple,
                    column_multiple));
  }

  const float* f32(const std::string& name) { return add<float>(part_of(name)); }
  const kernels::bf16* bf16_vector(const std::string& name) {
    return add<kernels::bf16>(part_of(name));
  }
  Bf16Matrix bf16_matrix(const std::string& name) {
    WeightPart part = part_of(name);
    const auto rows = static_cast<int>(part.range.rows());
    const auto cols = static_cast<int>(part.range.columns());
    return {add<kernels::bf16>(std::move(part)), rows, cols};
  }

  Fp8Matrix fp8_matrix(const std::string& name) {
    WeightPart part = part_of(name + ".weight");
    part.layout = WeightLayout::fp8_tiles;
    require_whole(part, part.range.columns(), kernels::FP8_TILE, kernels::FP8_TILE);
    Fp8Matrix matrix;
    matrix.rows = static_cast<int>(part.range.rows());
    matrix.cols = static_cast<int>(part.range.columns());
    matrix.tiles = add<kernels::fp8_e4m3>(std::move(part));
    matrix.scales = add<kernels::ue8m0>(part_of(name + ".scale"));
    return matrix;
  }

  /// @param name  of a matrix of expert 0
  const kernels::u8* jobs(const std::string& name, WeightLayout layout) {
    WeightPart part = part_of(name);
    part.layout = layout;
    part.experts = config().num_experts;
    require_whole(part, 2 * part.range.columns(), part.strip_rows(), kernels::MOE_JOB_COLS);
    part.bytes = static_cast<std::uint64_t>(part.experts) * part.strip_bytes() *
                 static_cast<std::uint64_t>(part.placed_rows() / part.strip_rows());
    return add<kernels::u8>(std::move(part));
  }

  const float* frequencies(int ratio) {
    WeightPart part;
    part.layout = WeightLayout::frequencies;
    part.tensor.name = ratio == 0 ? "rope frequencies" : "compressed rope frequencies";
    part.ratio = ratio;
    part.bytes = static_cast<std::uint64_t>(config().rope_dim / 2) * sizeof(float);
    return add<float>(std::move(part));
  }

  HyperConnection hyper_connection(const std::string& name) {
    HyperConnection hyper;
    hyper.fn = f32(name + "_fn");
    hyper.base = f32(name + "_base");
    hyper.scale = f32(name + "_scale");
    return hyper;
  }

  Compressor compressor(const std::string& name) {
    Compressor compressor;
    compressor.wkv = bf16_matrix(name + ".wkv.weight");
    compressor.wgate = bf16_matrix(name + ".wgate.weight");
    compressor.ape = f32(name + ".ape");
    compressor.norm = bf16_vector(name + ".norm.weight");
    return compressor;
  }

  Experts experts(const std::string& name, bool by_token) {
    Experts experts;
    experts.gate = bf16_matrix(name + ".gate.weight");
    if (by_token) {
      WeightPart part = part_of(name + ".gate.tid2eid");
      part.layout = WeightLayout::token_experts;
      part.bytes = part.bytes / sizeof(std::int64_t) * sizeof(kernels::u16);
      experts.token_experts = add<kernels::u16>(std::move(part));
    } else {
      experts.bias = f32(name + ".gate.bias");
    }
    const std::size_t index = expert_layers_++;
    const auto sets = static_cast<std::size_t>(options_.expert_sets);
    if (sets == 0 || index < sets) {
      routed_.push_back({jobs(name + ".experts.0.w1.weight", WeightLayout::gate_up_jobs),
                         jobs(name + ".experts.0.w2.weight", WeightLayout::down_jobs)});
    }
    experts.gate_up = routed_[index % routed_.size()].gate_up;
    experts.down = routed_[index % routed_.size()].down;
    experts.shared_gate = fp8_matrix(name + ".shared_experts.w1");
    experts.shared_up = fp8_matrix(name + ".shared_experts.w3");
    experts.shared_down = fp8_matrix(name + ".shared_experts.w2");
    return experts;
  }

  /// @param index  0 <= index < num_layers, or num_layers for the draft block
  Layer layer(const std::string& name, int index) {
    Layer layer;
    layer.hc_attention = hyper_connection(name + ".hc_attn");
    layer.hc_ffn = hyper_connection(name + ".hc_ffn");
    layer.attention_norm = bf16_vector(name + ".attn_norm.weight");
    layer.ffn_norm = bf16_vector(name + ".ffn_norm.weight");
    const std::string attn = name + ".attn";
    layer.wq_a = fp8_matrix(attn + ".wq_a");
    layer.wkv = fp8_matrix(attn + ".wkv");
    layer.wq_b = fp8_matrix(attn + ".wq_b");
    layer.wo_a = fp8_matrix(attn + ".wo_a");
    layer.wo_b = fp8_matrix(attn + ".wo_b");
    layer.q_norm = bf16_vector(attn + ".q_norm.weight");
    layer.kv_norm = bf16_vector(attn + ".kv_norm.weight");
    layer.sink = f32(attn + ".attn_sink");
    const LayerKind kind = config().layer_kind(index);
    if (kind != LayerKind::swa) layer.compressor = compressor(attn + ".compressor");
    if (kind == LayerKind::csa) {
      layer.indexer.wq_b = fp8_matrix(attn + ".indexer.wq_b");
      layer.indexer.weights_proj = bf16_matrix(attn + ".indexer.weights_proj.weight");
      layer.indexer.compressor = compressor(attn + ".indexer.compressor");
    }
    layer.experts = experts(name + ".ffn", index < config().num_hash_layers);
    return layer;
  }

  DraftBlock draft(const std::string& name) {
    DraftBlock draft;
    draft.layer = layer(name, config().num_layers);
    draft.e_proj = fp8_matrix(name + ".e_proj");
    draft.h_proj = fp8_matrix(name + ".h_proj");
    draft.e_norm = bf16_vector(name + ".enorm.weight");
    draft.h_norm = bf16_vector(name + ".hnorm.weight");
    draft.norm = bf16_vector(name + ".norm.weight");
    draft.hc_head = hyper_connection(name + ".hc_head");
    return draft;
  }

  const WeightOptions& options_;
  std::uint64_t base_;
  WeightPlacement& placement_;
  std::unordered_map<std::string, TensorSpec> specs_;
  struct RoutedExperts {
    const kernels::u8* gate_up;
    const kernels::u8* down;
  };
  std::vector<RoutedExperts> routed_;  // by layer, or set
  std::size_t expert_layers_ = 0;
};

}  // namespace

int WeightPart::strip_rows() const {
  switch (layout) {
    case WeightLayout::fp8_tiles:
      return kernels::FP8_TILE;
    case WeightLayout::gate_up_jobs:
      return kGateUpStrip;
    case WeightLayout::down_jobs:
      return kDownStrip;
    case WeightLayout::rows:
    case WeightLayout::token_experts:
    case WeightLayout::frequencies:
      return 1;
  }
  return 1;
}

std::int64_t WeightPart::placed_rows() const {
  if (layout != WeightLayout::gate_up_jobs) return range.rows();
  return kernels::moe_width(static_cast<int>(range.rows()));
}

std::uint64_t WeightPart::strip_bytes() const {
  const auto columns = static_cast<std::uint64_t>(range.columns());
  switch (layout) {
    case WeightLayout::gate_up_jobs:  // a stored column is two weights
      return kernels::moe_tile_bytes(kernels::MOE_JOB_ROWS, static_cast<int>(2 * columns));
    case WeightLayout::down_jobs:
      return kernels::moe_tile_bytes(kernels::MOE_JOB_ROWS,
                                     kernels::moe_width(static_cast<int>(2 * columns)));
    case WeightLayout::token_experts:
      return columns * sizeof(kernels::u16);
    case WeightLayout::fp8_tiles:
      return columns * kernels::FP8_TILE;
    case WeightLayout::rows:
      return columns * static_cast<std::uint64_t>(dtype_bytes(tensor.dtype));
    case WeightLayout::frequencies:
      return bytes;
  }
  return bytes;
}

WeightPlacement place_weights(const ModelConfig& config, const WeightOptions& options,
                              std::uint64_t base) {
  check_rank(config, options);
  WeightPlacement placement;
  placement.config = first_layers(config, options.max_layers);
  Placer(options, base, placement).place_model();
  return placement;
}

}  // namespace ingot::executor
