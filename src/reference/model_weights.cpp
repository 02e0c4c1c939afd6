#include "src/reference/model_weights.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <unordered_map>

#include "src/reference/numerics.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot::reference {
namespace {

/// Finds tensors by name and cuts this rank's range out of them.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, int tp_rank, int tp_size)
      : checkpoint_(checkpoint), tp_rank_(tp_rank), tp_size_(tp_size) {
    for (TensorSpec& spec : tensor_table(checkpoint.config())) {
      std::string name = spec.name;
      specs_.emplace(std::move(name), std::move(spec));
    }
  }

  const ModelConfig& config() const { return checkpoint_.config(); }

  WeightMatrix matrix(const std::string& name) const {
    const TensorView& weight = checkpoint_.tensor(name);
    const TensorSpec& spec = specs_.at(name);
    const bool quantized = spec.kind == TensorKind::fp8 || spec.kind == TensorKind::fp4;
    const std::string stem = name.substr(0, name.rfind('.'));
    const WeightMatrix whole =
        weight_matrix(weight, quantized ? &checkpoint_.tensor(stem + ".scale") : nullptr);
    const TensorRange range = rank_range(spec, tp_rank_, tp_size_);
    const int per_column = spec.kind == TensorKind::fp4 ? 2 : 1;  // values in a stored column
    return whole.row_range(range.row_begin, static_cast<int>(range.rows()))
        .column_range(per_column * range.column_begin,
                      static_cast<int>(per_column * range.columns()));
  }

  /// BF16 or F32 as float, row-major; this rank's range of a vector, the whole of a matrix.
  std::vector<float> floats(const std::string& name) const {
    const TensorView& tensor = checkpoint_.tensor(name);
    const TensorSpec& spec = specs_.at(name);
    const auto width = static_cast<std::size_t>(dtype_bytes(tensor.dtype));
    std::vector<float> values(tensor.bytes.size() / width);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (tensor.dtype == Dtype::f32) {
        std::memcpy(&values[i], &tensor.bytes[4 * i], 4);
      } else {
        std::uint16_t bits = 0;
        std::memcpy(&bits, &tensor.bytes[2 * i], 2);
        values[i] = bf16_value(bits);
      }
    }
    if (spec.split == Split::replicated) return values;
    const TensorRange range = rank_range(spec, tp_rank_, tp_size_);
    return {values.begin() + range.row_begin, values.begin() + range.row_end};
  }

  std::vector<std::uint16_t> token_experts(const std::string& name) const {
    const TensorView& tensor = checkpoint_.tensor(name);
    std::vector<std::uint16_t> experts(tensor.bytes.size() / 8);
    for (std::size_t i = 0; i < experts.size(); ++i) {
      std::int64_t id = 0;
      std::memcpy(&id, &tensor.bytes[8 * i], 8);
      experts[i] = static_cast<std::uint16_t>(id);
    }
    return experts;
  }

 private:
  const Checkpoint& checkpoint_;
  int tp_rank_;
  int tp_size_;
  std::unordered_map<std::string, TensorSpec> specs_;
};

HyperConnectionWeights read_hyper(const WeightReader& read, const std::string& name) {
  return {read.matrix(name + "_fn"), read.floats(name + "_base"), read.floats(name + "_scale")};
}

AttentionWeights read_attention(const WeightReader& read, const std::string& name) {
  AttentionWeights weights;
  weights.wq_a = read.matrix(name + ".wq_a.weight");
  weights.wq_b = read.matrix(name + ".wq_b.weight");
  weights.wkv = read.matrix(name + ".wkv.weight");
  weights.wo_a = read.matrix(name + ".wo_a.weight");
  weights.wo_b = read.matrix(name + ".wo_b.weight");
  weights.q_norm = read.floats(name + ".q_norm.weight");
  weights.kv_norm = read.floats(name + ".kv_norm.weight");
  weights.sink = read.floats(name + ".attn_sink");
  return weights;
}

CompressorWeights read_compressor(const WeightReader& read, const std::string& name,
                                  CompressorUse use, int ratio, int dim) {
  CompressorWeights weights;
  weights.use = use;
  weights.ratio = ratio;
  weights.dim = dim;
  weights.wkv = read.matrix(name + ".wkv.weight");
  weights.wgate = read.matrix(name + ".wgate.weight");
  weights.ape = read.floats(name + ".ape");
  weights.norm = read.floats(name + ".norm.weight");
  return weights;
}

ExpertWeights read_expert(const WeightReader& read, const std::string& name) {
  return {read.matrix(name + ".w1.weight"), read.matrix(name + ".w2.weight"),
          read.matrix(name + ".w3.weight")};
}

MoeWeights read_moe(const WeightReader& read, const std::string& name, bool by_token) {
  MoeWeights weights;
  weights.gate = read.matrix(name + ".gate.weight");
  if (by_token) {
    weights.tid2eid = read.token_experts(name + ".gate.tid2eid");
  } else {
    weights.bias = read.floats(name + ".gate.bias");
  }
  for (int expert = 0; expert < read.config().num_experts; ++expert) {
    weights.experts.push_back(read_expert(read, fmt::format("{}.experts.{}", name, expert)));
  }
  weights.shared = read_expert(read, name + ".shared_experts");
  return weights;
}

/// @param index  0 ≤ index < num_layers, or num_layers for the MTP block
LayerWeights read_layer(const WeightReader& read, const std::string& name, int index) {
  const ModelConfig& config = read.config();
  LayerWeights weights;
  weights.ratio = config.ratio(index);
  weights.hc_attn = read_hyper(read, name + ".hc_attn");
  weights.hc_ffn = read_hyper(read, name + ".hc_ffn");
  weights.attn_norm = read.floats(name + ".attn_norm.weight");
  weights.ffn_norm = read.floats(name + ".ffn_norm.weight");
  weights.attention = read_attention(read, name + ".attn");
  const LayerKind kind = config.layer_kind(index);
  if (kind != LayerKind::swa) {
    weights.compressor = read_compressor(read, name + ".attn.compressor", CompressorUse::attention,
                                         weights.ratio, config.head_dim);
  }
  if (kind == LayerKind::csa) {
    const std::string indexer = name + ".attn.indexer";
    weights.indexer = {read.matrix(indexer + ".wq_b.weight"),
                       read.matrix(indexer + ".weights_proj.weight"),
                       read_compressor(read, indexer + ".compressor", CompressorUse::indexer,
                                       weights.ratio, config.index_head_dim)};
  }
  weights.moe = read_moe(read, name + ".ffn", index < config.num_hash_layers);
  return weights;
}

}  // namespace

ModelWeights model_weights(const Checkpoint& checkpoint, int tp_rank, int tp_size) {
  const WeightReader read(checkpoint, tp_rank, tp_size);
  const ModelConfig& config = read.config();
  ModelWeights weights;
  weights.embed = read.matrix("embed.weight");
  weights.head = read.matrix("head.weight");
  weights.norm = read.floats("norm.weight");
  weights.hc_head = read_hyper(read, "hc_head");
  for (int layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(read_layer(read, fmt::format("layers.{}", layer), layer));
  }
  if (config.num_mtp_layers > 0) {
    MtpWeights& mtp = weights.mtp.emplace();
    mtp.layer = read_layer(read, "mtp.0", config.num_layers);
    mtp.e_proj = read.matrix("mtp.0.e_proj.weight");
    mtp.h_proj = read.matrix("mtp.0.h_proj.weight");
    mtp.enorm = read.floats("mtp.0.enorm.weight");
    mtp.hnorm = read.floats("mtp.0.hnorm.weight");
    mtp.norm = read.floats("mtp.0.norm.weight");
    mtp.hc_head = read_hyper(read, "mtp.0.hc_head");
  }
  return weights;
}

}  // namespace ingot::reference
