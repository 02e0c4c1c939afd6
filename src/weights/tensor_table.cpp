#include "src/weights/tensor_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace ingot {
namespace {

constexpr std::int64_t kBlock = 128;  // rows and columns under one FP8 scale
constexpr std::int64_t kGroup = 32;   // columns under one FP4 scale

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Appends tensors under a name prefix.
class TableWriter {
 public:
  TableWriter(const ModelConfig& config, std::vector<TensorSpec>& table)
      : config_(config), table_(table) {}

  void globals_before_layers() { bf16("embed.weight", vocab(), hidden(), Split::rows); }
  void globals_after_layers() {
    norm("norm.weight", hidden());
    bf16("head.weight", vocab(), hidden(), Split::rows);
    hc_head("");
  }

  void block(const std::string& prefix, int layer) {
    attention(prefix + ".attn", config_.layer_kind(layer), config_.ratio(layer));
    experts(prefix + ".ffn", layer);
    norm(prefix + ".attn_norm.weight", hidden());
    norm(prefix + ".ffn_norm.weight", hidden());
    const std::int64_t mix = (2 + std::int64_t{config_.hc_mult}) * config_.hc_mult;
    for (const char* part : {".hc_attn", ".hc_ffn"}) {
      f32(prefix + part + "_fn", {mix, config_.hc_mult * hidden()});
      f32(prefix + part + "_base", {mix});
      f32(prefix + part + "_scale", {3});
    }
  }

  void mtp(const std::string& prefix, int layer) {
    block(prefix, layer);
    fp8(prefix + ".e_proj", hidden(), hidden());
    fp8(prefix + ".h_proj", hidden(), hidden());
    for (const char* part : {".enorm", ".hnorm", ".norm"})
      norm(prefix + part + ".weight", hidden());
    hc_head(prefix + ".");
  }

 private:
  std::int64_t hidden() const { return config_.hidden_size; }
  std::int64_t vocab() const { return config_.vocab_size; }

  void add(std::string name, TensorKind kind, Dtype dtype, std::vector<std::int64_t> shape,
           Split split) {
    table_.push_back({std::move(name), kind, dtype, std::move(shape), split});
  }
  void bf16(std::string name, std::int64_t rows, std::int64_t columns,
            Split split = Split::replicated) {
    add(std::move(name), TensorKind::bf16, Dtype::bf16, {rows, columns}, split);
  }
  void norm(std::string name, std::int64_t size) {
    add(std::move(name), TensorKind::norm, Dtype::bf16, {size}, Split::replicated);
  }
  void f32(std::string name, std::vector<std::int64_t> shape, Split split = Split::replicated) {
    add(std::move(name), TensorKind::f32, Dtype::f32, std::move(shape), split);
  }
  void fp8(const std::string& name, std::int64_t rows, std::int64_t columns,
           Split split = Split::replicated) {
    add(fmt::format("{}.weight", name), TensorKind::fp8, Dtype::f8_e4m3, {rows, columns}, split);
    add(fmt::format("{}.scale", name), TensorKind::block_scale, Dtype::f8_e8m0,
        {ceil_div(rows, kBlock), ceil_div(columns, kBlock)}, split);
  }
  void fp4(const std::string& name, std::int64_t rows, std::int64_t columns, Split split) {
    add(fmt::format("{}.weight", name), TensorKind::fp4, Dtype::i8, {rows, columns / 2}, split);
    add(fmt::format("{}.scale", name), TensorKind::group_scale, Dtype::f8_e8m0,
        {rows, columns / kGroup}, split);
  }

  void attention(const std::string& attn, LayerKind kind, int ratio) {
    const std::int64_t heads = config_.num_heads;
    const std::int64_t width = heads * config_.head_dim;
    const std::int64_t groups_width = std::int64_t{config_.o_groups} * config_.o_lora_rank;
    f32(attn + ".attn_sink", {heads}, Split::rows);
    fp8(attn + ".wq_a", config_.q_lora_rank, hidden());
    norm(attn + ".q_norm.weight", config_.q_lora_rank);
    fp8(attn + ".wq_b", width, config_.q_lora_rank, Split::rows);
    fp8(attn + ".wkv", config_.head_dim, hidden());
    norm(attn + ".kv_norm.weight", config_.head_dim);
    fp8(attn + ".wo_a", groups_width, width / config_.o_groups, Split::rows);
    fp8(attn + ".wo_b", hidden(), groups_width, Split::columns);
    if (kind == LayerKind::swa) return;
    compressor(attn + ".compressor", ratio, config_.head_dim);
    if (kind != LayerKind::csa) return;
    fp8(attn + ".indexer.wq_b", std::int64_t{config_.index_heads} * config_.index_head_dim,
        config_.q_lora_rank);
    bf16(attn + ".indexer.weights_proj.weight", config_.index_heads, hidden());
    compressor(attn + ".indexer.compressor", ratio, config_.index_head_dim);
  }

  /// CSA blocks overlap: their compressors carry two halves (model specification 3.9).
  void compressor(const std::string& name, int ratio, std::int64_t dim) {
    const std::int64_t width = ratio == 4 ? 2 * dim : dim;
    f32(name + ".ape", {ratio, width});
    bf16(name + ".wkv.weight", width, hidden());
    bf16(name + ".wgate.weight", width, hidden());
    norm(name + ".norm.weight", dim);
  }

  void experts(const std::string& ffn, int layer) {
    const std::int64_t inter = config_.moe_intermediate_size;
    bf16(ffn + ".gate.weight", config_.num_experts, hidden());
    if (layer < config_.num_hash_layers) {
      add(ffn + ".gate.tid2eid", TensorKind::token_experts, Dtype::i64,
          {vocab(), config_.experts_per_token}, Split::replicated);
    } else {
      f32(ffn + ".gate.bias", {config_.num_experts});
    }
    for (int expert = 0; expert < config_.num_experts; ++expert) {
      const std::string name = fmt::format("{}.experts.{}", ffn, expert);
      fp4(name + ".w1", inter, hidden(), Split::rows);
      fp4(name + ".w2", hidden(), inter, Split::columns);
      fp4(name + ".w3", inter, hidden(), Split::rows);
    }
    fp8(ffn + ".shared_experts.w1", inter, hidden(), Split::rows);
    fp8(ffn + ".shared_experts.w2", hidden(), inter, Split::columns);
    fp8(ffn + ".shared_experts.w3", inter, hidden(), Split::rows);
  }

  void hc_head(const std::string& prefix) {
    f32(prefix + "hc_head_fn", {config_.hc_mult, config_.hc_mult * hidden()});
    f32(prefix + "hc_head_base", {config_.hc_mult});
    f32(prefix + "hc_head_scale", {1});
  }

  const ModelConfig& config_;
  std::vector<TensorSpec>& table_;
};

bool is_valid_tp(const ModelConfig& config, int tp) {
  const auto divides = [tp](std::int64_t size) { return size % tp == 0; };
  const auto whole_blocks = [tp](std::int64_t size) { return size % (tp * kBlock) == 0; };
  return divides(config.num_heads) && divides(config.o_groups) && divides(config.index_heads) &&
         divides(config.vocab_size) && whole_blocks(config.moe_intermediate_size) &&
         whole_blocks(std::int64_t{config.o_groups} * config.o_lora_rank) &&
         (tp == 1 || whole_blocks(std::int64_t{config.num_heads} * config.head_dim));
}

}  // namespace

std::vector<TensorSpec> tensor_table(const ModelConfig& config) {
  // Two tensors for each matrix of an expert, and less than 64 others in a block.
  const auto blocks = static_cast<std::size_t>(config.num_layers + config.num_mtp_layers);
  std::vector<TensorSpec> table;
  table.reserve(blocks * (6 * static_cast<std::size_t>(config.num_experts) + 64));
  TableWriter writer(config, table);
  writer.globals_before_layers();
  for (int layer = 0; layer < config.num_layers; ++layer) {
    writer.block(fmt::format("layers.{}", layer), layer);
  }
  writer.globals_after_layers();
  for (int k = 0; k < config.num_mtp_layers; ++k) {
    writer.mtp(fmt::format("mtp.{}", k), config.num_layers + k);
  }
  return table;
}

TensorRange rank_range(const TensorSpec& spec, int tp_rank, int tp_size) {
  TensorRange range;
  range.row_end = spec.shape[0];
  range.column_end = spec.shape.size() > 1 ? spec.shape[1] : 1;
  if (spec.split == Split::rows) {
    const std::int64_t share = range.row_end / tp_size;
    range.row_begin = tp_rank * share;
    range.row_end = range.row_begin + share;
  } else if (spec.split == Split::columns) {
    const std::int64_t share = range.column_end / tp_size;
    range.column_begin = tp_rank * share;
    range.column_end = range.column_begin + share;
  }
  return range;
}

std::int64_t range_bytes(const TensorRange& range, Dtype dtype) {
  return range.rows() * range.columns() * dtype_bytes(dtype);
}

std::vector<int> valid_tp_sizes(const ModelConfig& config) {
  std::vector<int> sizes;
  for (int tp = 1; tp <= config.num_heads; ++tp) {
    if (is_valid_tp(config, tp)) sizes.push_back(tp);
  }
  return sizes;
}

Result<void> check_tp_size(const ModelConfig& config, int tp_size) {
  const std::vector<int> sizes = valid_tp_sizes(config);
  if (std::find(sizes.begin(), sizes.end(), tp_size) != sizes.end()) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("splitting the model over {} ranks: its heads, output groups, index "
                          "heads, vocabulary or intermediate size do not divide evenly; valid "
                          "tensor-parallel sizes are {}",
                          tp_size, fmt::join(sizes, ", ")));
}

}  // namespace ingot
