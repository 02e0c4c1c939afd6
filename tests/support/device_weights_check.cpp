#include "tests/support/device_weights_check.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "kernel_templates/fp8_weight_tiles.hpp"
#include "kernel_templates/moe_decode.args.h"
#include "kernel_templates/moe_weight_tiles.hpp"
#include "src/reference/rope.hpp"

namespace ingot::test {
namespace {

using executor::Bf16Matrix;
using executor::Fp8Matrix;

/// What a rank has of a matrix: all of it, a share of its rows, or of its columns.
enum class Share { all, rows, columns };

class WeightsCheck {
 public:
  WeightsCheck(const Checkpoint& checkpoint, int tp_rank, int tp_size, const FetchWeights& fetch)
      : checkpoint_(checkpoint), rank_(tp_rank), size_(tp_size), fetch_(fetch) {}

  void model(const executor::WeightViews& views) const {
    bf16(views.embedding, "embed.weight", Share::rows);
    bf16(views.head, "head.weight", Share::rows);
    CHECK(views.first_token == rank_ * config().vocab_size / size_);
    vector(views.norm, "norm.weight");
    hyper(views.hc_head, "hc_head");
    frequencies(views.plain_frequencies, 0);
    frequencies(views.compress_frequencies, 128);
    REQUIRE(views.layers.size() == static_cast<std::size_t>(config().num_layers));
    for (int i = 0; i < config().num_layers; ++i)
      layer(views.layers[static_cast<std::size_t>(i)], fmt::format("layers.{}.", i), i);
    REQUIRE(views.draft.has_value() == (config().num_mtp_layers > 0));
    if (!views.draft) return;
    layer(views.draft->layer, "mtp.0.", config().num_layers);
    fp8(views.draft->e_proj, "mtp.0.e_proj", Share::all);
    fp8(views.draft->h_proj, "mtp.0.h_proj", Share::all);
    vector(views.draft->e_norm, "mtp.0.enorm.weight");
    vector(views.draft->h_norm, "mtp.0.hnorm.weight");
    vector(views.draft->norm, "mtp.0.norm.weight");
    hyper(views.draft->hc_head, "mtp.0.hc_head");
  }

 private:
  /// The rank's range of a stored tensor, in stored elements.
  struct Range {
    std::size_t row, rows, column, columns, stored_columns, width;
  };

  const ModelConfig& config() const { return checkpoint_.config(); }

  Range range(const TensorView& tensor, Share share) const {
    const auto rank = static_cast<std::size_t>(rank_), size = static_cast<std::size_t>(size_);
    const auto rows = static_cast<std::size_t>(tensor.shape[0]);
    const auto columns = static_cast<std::size_t>(tensor.shape.size() > 1 ? tensor.shape[1] : 1);
    Range r{0, rows, 0, columns, columns, static_cast<std::size_t>(dtype_bytes(tensor.dtype))};
    if (share == Share::rows) {
      r.rows = rows / size;
      r.row = rank * r.rows;
    } else if (share == Share::columns) {
      r.columns = columns / size;
      r.column = rank * r.columns;
    }
    return r;
  }

  /// The rank's range, row after row.
  std::vector<std::byte> stored(const std::string& name, Share share) const {
    const TensorView& tensor = checkpoint_.tensor(name);
    const Range r = range(tensor, share);
    std::vector<std::byte> bytes;
    for (std::size_t row = r.row; row < r.row + r.rows; ++row) {
      const auto begin = tensor.bytes.begin() +
                         static_cast<std::ptrdiff_t>((row * r.stored_columns + r.column) * r.width);
      bytes.insert(bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(r.columns * r.width));
    }
    return bytes;
  }

  std::vector<std::byte> fetch(const void* address, std::size_t bytes,
                               const std::string& name) const {
    INFO(name);
    REQUIRE(address != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(address) % 256 == 0);
    return fetch_(address, bytes);
  }

  void same(const void* address, const std::string& name, Share share) const {
    const std::vector<std::byte> expected = stored(name, share);
    const bool is_same = fetch(address, expected.size(), name) == expected;
    INFO(name);
    CHECK(is_same);
  }
  void vector(const void* address, const std::string& name) const {
    same(address, name, Share::all);
  }

  void bf16(const Bf16Matrix& matrix, const std::string& name, Share share) const {
    const Range r = range(checkpoint_.tensor(name), share);
    INFO(name);
    CHECK(matrix.rows == static_cast<int>(r.rows));
    CHECK(matrix.cols == static_cast<int>(r.columns));
    same(matrix.values, name, share);
  }

  void fp8(const Fp8Matrix& matrix, const std::string& name, Share share) const {
    same(matrix.scales, name + ".scale", share);
    const std::vector<std::byte> expected = stored(name + ".weight", share);
    const Range r = range(checkpoint_.tensor(name + ".weight"), share);
    INFO(name);
    REQUIRE(matrix.rows == static_cast<int>(r.rows));
    REQUIRE(matrix.cols == static_cast<int>(r.columns));
    const std::vector<std::byte> tiles = fetch(matrix.tiles, expected.size(), name);
    std::size_t wrong = 0, at = 0;
    for (int row = 0; row < matrix.rows; ++row)
      for (int col = 0; col < matrix.cols; ++col, ++at)
        wrong += tiles[kernels::fp8_tile_index(row, col, matrix.cols)] != expected[at] ? 1U : 0U;
    CHECK(wrong == 0);
  }

  /// A matrix of an expert, whose row i lies in job row_of(i).second of strip row_of(i).first.
  template <class RowOf>
  void fp4(const std::byte* jobs, const std::string& name, Share share, const RowOf& row_of) const {
    const std::vector<std::byte> codes = stored(name + ".weight", share);
    const std::vector<std::byte> scales = stored(name + ".scale", share);
    const Range r = range(checkpoint_.tensor(name + ".weight"), share);
    const auto columns = static_cast<int>(2 * r.columns);
    const int placed = share == Share::columns ? kernels::moe_width(columns) : columns;
    std::size_t wrong = 0;
    for (int row = 0; row < static_cast<int>(r.rows); ++row) {
      const auto [strip, job_row] = row_of(row);
      for (int col = 0; col < columns; ++col) {
        const std::byte* job =
            jobs + static_cast<std::ptrdiff_t>(strip * (placed / 128) + col / 128) *
                       kernels::MOE_JOB_BYTES;
        const auto element = static_cast<std::size_t>(row * columns + col);
        const auto code = std::to_integer<int>(codes[element / 2]) >> (4 * (col % 2)) & 15;
        const auto scale = std::to_integer<int>(scales[element / 32]);
        if (kernels::moe_job_code(job, job_row, col % 128) != code ||
            kernels::moe_job_scale(job, job_row, col % 128 / 32) != scale)
          ++wrong;
      }
    }
    INFO(name);
    CHECK(wrong == 0);
  }

  void routed(const executor::Experts& experts, const std::string& name) const {
    const int inter = kernels::moe_width(config().moe_intermediate_size / size_);
    const std::size_t gate_up_bytes = kernels::moe_tile_bytes(2 * inter, config().hidden_size);
    const std::size_t down_bytes = kernels::moe_tile_bytes(config().hidden_size, inter);
    const auto count = static_cast<std::size_t>(config().num_experts);
    const auto gate_up = fetch(experts.gate_up, count * gate_up_bytes, name + ".gate_up");
    const auto down = fetch(experts.down, count * down_bytes, name + ".down");
    for (std::size_t e = 0; e < count; ++e) {
      const std::string expert = fmt::format("{}.experts.{}", name, e);
      const auto of_gate_up = [](int is_up) {
        return [is_up](int row) {
          return std::pair(row / 16, row % 16 / 8 * 16 + 8 * is_up + row % 8);
        };
      };
      fp4(&gate_up[e * gate_up_bytes], expert + ".w1", Share::rows, of_gate_up(0));
      fp4(&gate_up[e * gate_up_bytes], expert + ".w3", Share::rows, of_gate_up(1));
      fp4(&down[e * down_bytes], expert + ".w2", Share::columns,
          [](int row) { return std::pair(row / 32, row % 32); });
    }
  }

  void experts(const executor::Experts& experts, const std::string& name, bool by_token) const {
    bf16(experts.gate, name + ".gate.weight", Share::all);
    CHECK((experts.bias == nullptr) == by_token);
    CHECK((experts.token_experts == nullptr) == !by_token);
    if (by_token) {
      token_experts(experts.token_experts, name + ".gate.tid2eid");
    } else {
      vector(experts.bias, name + ".gate.bias");
    }
    routed(experts, name);
    fp8(experts.shared_gate, name + ".shared_experts.w1", Share::rows);
    fp8(experts.shared_up, name + ".shared_experts.w3", Share::rows);
    fp8(experts.shared_down, name + ".shared_experts.w2", Share::columns);
  }

  void token_experts(const void* address, const std::string& name) const {
    const std::vector<std::byte> wide = stored(name, Share::all);
    const std::size_t count = wide.size() / 8;
    const std::vector<std::byte> narrow = fetch(address, 2 * count, name);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t expected = 0;
      std::uint16_t found = 0;
      std::memcpy(&expected, &wide[8 * i], 8);
      std::memcpy(&found, &narrow[2 * i], 2);
      wrong += found != expected ? 1U : 0U;
    }
    INFO(name);
    CHECK(wrong == 0);
  }

  void hyper(const executor::HyperConnection& hyper, const std::string& name) const {
    vector(hyper.fn, name + "_fn");
    vector(hyper.base, name + "_base");
    vector(hyper.scale, name + "_scale");
  }

  void compressor(const executor::Compressor& compressor, const std::string& name) const {
    bf16(compressor.wkv, name + ".wkv.weight", Share::all);
    bf16(compressor.wgate, name + ".wgate.weight", Share::all);
    vector(compressor.ape, name + ".ape");
    vector(compressor.norm, name + ".norm.weight");
  }

  void frequencies(const float* address, int ratio) const {
    const std::vector<float> expected = reference::rope_frequencies(config(), ratio);
    const auto found = fetch(address, expected.size() * sizeof(float), "rope frequencies");
    CHECK(std::memcmp(found.data(), expected.data(), found.size()) == 0);
  }

  void layer(const executor::Layer& layer, const std::string& name, int index) const {
    hyper(layer.hc_attention, name + "hc_attn");
    hyper(layer.hc_ffn, name + "hc_ffn");
    vector(layer.attention_norm, name + "attn_norm.weight");
    vector(layer.ffn_norm, name + "ffn_norm.weight");
    const std::string attn = name + "attn.";
    fp8(layer.wq_a, attn + "wq_a", Share::all);
    fp8(layer.wkv, attn + "wkv", Share::all);
    fp8(layer.wq_b, attn + "wq_b", Share::rows);
    fp8(layer.wo_a, attn + "wo_a", Share::rows);
    fp8(layer.wo_b, attn + "wo_b", Share::columns);
    vector(layer.q_norm, attn + "q_norm.weight");
    vector(layer.kv_norm, attn + "kv_norm.weight");
    same(layer.sink, attn + "attn_sink", Share::rows);
    const LayerKind kind = config().layer_kind(index);
    CHECK((layer.compressor.ape == nullptr) == (kind == LayerKind::swa));
    if (kind != LayerKind::swa) compressor(layer.compressor, attn + "compressor");
    CHECK((layer.indexer.wq_b.tiles == nullptr) == (kind != LayerKind::csa));
    if (kind == LayerKind::csa) {
      fp8(layer.indexer.wq_b, attn + "indexer.wq_b", Share::all);
      bf16(layer.indexer.weights_proj, attn + "indexer.weights_proj.weight", Share::all);
      compressor(layer.indexer.compressor, attn + "indexer.compressor");
    }
    experts(layer.experts, name + "ffn", index < config().num_hash_layers);
  }

  const Checkpoint& checkpoint_;
  int rank_;
  int size_;
  const FetchWeights& fetch_;
};

}  // namespace

void check_weights(const Checkpoint& checkpoint, const executor::WeightViews& views, int tp_rank,
                   int tp_size, const FetchWeights& fetch) {
  WeightsCheck(checkpoint, tp_rank, tp_size, fetch).model(views);
}

}  // namespace ingot::test
