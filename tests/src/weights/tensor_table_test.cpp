#include "src/weights/tensor_table.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "src/checkpoint/safetensors.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

ModelConfig golden(const char* name) {
  return value_or_throw(read_model_config(test::golden_dir() / "checkpoint" / name));
}

const TensorSpec& find(const std::vector<TensorSpec>& table, std::string_view name) {
  for (const TensorSpec& spec : table) {
    if (spec.name == name) return spec;
  }
  throw std::runtime_error("no tensor " + std::string(name));
}

std::uint64_t bytes_of(const TensorSpec& spec) {
  return tensor_bytes(spec.shape, spec.dtype).value();
}

std::uint64_t bytes_under(const std::vector<TensorSpec>& table, std::string_view prefix) {
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : table) {
    if (spec.name.starts_with(prefix)) bytes += bytes_of(spec);
  }
  return bytes;
}

}  // namespace

TEST_CASE("the V4-Flash table has the published tensors and bytes", "[cpu][weights]") {
  const auto table = tensor_table(golden("deepseek-v4-flash.json"));
  CHECK(table.size() == 69187);
  CHECK(bytes_under(table, "") == 159'609'485'896);
  std::map<Dtype, std::pair<std::uint64_t, std::uint64_t>> dtypes;
  std::set<std::string_view> names;
  for (const TensorSpec& spec : table) {
    auto& [tensors, bytes] = dtypes[spec.dtype];
    ++tensors;
    bytes += bytes_of(spec);
    names.insert(spec.name);
  }
  CHECK(names.size() == table.size());
  using Counted = std::pair<std::uint64_t, std::uint64_t>;
  CHECK(dtypes.size() == 6);
  CHECK(dtypes[Dtype::i8] == Counted{33792, 141'733'920'768});
  CHECK(dtypes[Dtype::f8_e8m0] == Counted{34167, 8'858'737'664});
  CHECK(dtypes[Dtype::f8_e4m3] == Counted{375, 6'023'020'544});
  CHECK(dtypes[Dtype::bf16] == Counted{433, 2'830'518'528});
  CHECK(dtypes[Dtype::f32] == Counted{417, 144'672'072});
  CHECK(dtypes[Dtype::i64] == Counted{3, 18'616'320});
}

TEST_CASE("every kind of V4-Flash layer has the published bytes", "[cpu][weights]") {
  const auto table = tensor_table(golden("deepseek-v4-flash.json"));
  CHECK(bytes_under(table, "layers.0.") == 3'566'148'952);
  CHECK(bytes_under(table, "layers.1.") == 3'566'148'952);
  CHECK(bytes_under(table, "layers.2.") == 3'596'055'640);
  CHECK(bytes_under(table, "layers.3.") == 3'568'596'312);
  CHECK(bytes_under(table, "layers.42.") == 3'589'851'224);
  CHECK(bytes_under(table, "mtp.0.") == 3'593'787'756);
  CHECK(bytes_under(table, "layers.7.ffn.experts.9.") == 13'369'344);
  CHECK(bytes_under(table, "layers.7.ffn.shared_experts.") == 25'167'360);
}

TEST_CASE("ranks together own every byte of a split tensor once", "[cpu][weights]") {
  const ModelConfig config = golden("deepseek-v4-flash.json");
  const auto table = tensor_table(config);
  for (const int tp : valid_tp_sizes(config)) {
    for (const TensorSpec& spec : table) {
      std::int64_t bytes = 0;
      TensorRange before;
      for (int rank = 0; rank < tp; ++rank) {
        const TensorRange range = rank_range(spec, rank, tp);
        bytes += range_bytes(range, spec.dtype);
        if (spec.split == Split::rows && range.row_begin != before.row_end) FAIL(spec.name);
        if (spec.split == Split::columns && range.column_begin != before.column_end) {
          FAIL(spec.name);
        }
        before = range;
      }
      const auto whole = static_cast<std::int64_t>(bytes_of(spec));
      if (bytes != (spec.split == Split::replicated ? tp * whole : whole)) FAIL(spec.name);
    }
  }
}

TEST_CASE("a scale is split where its weight is", "[cpu][weights]") {
  const auto table = tensor_table(golden("deepseek-v4-flash.json"));
  for (std::size_t i = 0; i < table.size(); ++i) {
    const bool block = table[i].kind == TensorKind::block_scale;
    if (!block && table[i].kind != TensorKind::group_scale) continue;
    const TensorSpec& weight = table[i - 1];
    const TensorRange part = rank_range(weight, 3, 8);
    const TensorRange scale = rank_range(table[i], 3, 8);
    // In weight units: FP8 scales cover 128 × 128, FP4 scales a row and 32 columns = 16 bytes.
    const std::int64_t rows = block ? 128 : 1;
    const std::int64_t columns = block ? 128 : 16;
    const TensorRange covered{scale.row_begin * rows, scale.row_end * rows,
                              scale.column_begin * columns, scale.column_end * columns};
    if (!(covered == part)) FAIL(weight.name);
  }
}

TEST_CASE("each tensor is split as the design says", "[cpu][weights]") {
  const auto specs = tensor_table(golden("deepseek-v4-flash.json"));
  const auto [name, expected] = GENERATE(table<const char*, TensorRange>({
      {"embed.weight", {16160, 32320, 0, 4096}},
      {"head.weight", {16160, 32320, 0, 4096}},
      {"layers.2.attn.wq_b.weight", {4096, 8192, 0, 1024}},
      {"layers.2.attn.wq_b.scale", {32, 64, 0, 8}},
      {"layers.2.attn.attn_sink", {8, 16, 0, 1}},
      {"layers.2.attn.wo_a.weight", {1024, 2048, 0, 4096}},
      {"layers.2.attn.wo_b.weight", {0, 4096, 1024, 2048}},
      {"layers.2.attn.wo_b.scale", {0, 32, 8, 16}},
      {"layers.2.ffn.experts.0.w1.weight", {256, 512, 0, 2048}},
      {"layers.2.ffn.experts.0.w1.scale", {256, 512, 0, 128}},
      {"layers.2.ffn.experts.0.w2.weight", {0, 4096, 128, 256}},
      {"layers.2.ffn.experts.0.w2.scale", {0, 4096, 8, 16}},
      {"layers.2.ffn.shared_experts.w3.weight", {256, 512, 0, 4096}},
      {"layers.2.ffn.shared_experts.w2.scale", {0, 32, 2, 4}},
      {"layers.2.attn.wq_a.weight", {0, 1024, 0, 4096}},
      {"layers.2.attn.wkv.weight", {0, 512, 0, 4096}},
      {"layers.2.attn.indexer.wq_b.weight", {0, 8192, 0, 1024}},
      {"layers.2.attn.compressor.wkv.weight", {0, 1024, 0, 4096}},
      {"layers.2.ffn.gate.weight", {0, 256, 0, 4096}},
      {"layers.2.ffn.gate.tid2eid", {0, 129280, 0, 6}},
      {"layers.2.hc_attn_fn", {0, 24, 0, 16384}},
      {"mtp.0.e_proj.weight", {0, 4096, 0, 4096}},
  }));
  CAPTURE(name);
  CHECK(rank_range(find(specs, name), 1, 8) == expected);
  CHECK(rank_range(find(specs, name), 0, 1).row_end == find(specs, name).shape[0]);
}

TEST_CASE("valid tensor-parallel sizes follow the model's sizes", "[cpu][weights]") {
  CHECK(valid_tp_sizes(golden("deepseek-v4-flash.json")) == std::vector{1, 2, 4, 8});
  CHECK(valid_tp_sizes(golden("deepseek-v4-pro.json")) == std::vector{1, 2, 4, 8});
  CHECK(valid_tp_sizes(golden("tiny.json")) == std::vector{1});
  CHECK(valid_tp_sizes(golden("tiny-tp.json")) == std::vector{1, 2, 4, 8});
}

TEST_CASE("a tensor-parallel size that is not valid is refused with those that are",
          "[cpu][weights]") {
  const ModelConfig config = golden("deepseek-v4-flash.json");
  const int tp = GENERATE(-1, 0, 3, 16, 5, 1000000);
  const auto checked = check_tp_size(config, tp);
  REQUIRE(!checked);
  CHECK(checked.error().code == ErrorCode::invalid_argument);
  CHECK(checked.error().message.find("1, 2, 4, 8") != std::string::npos);
  CHECK(check_tp_size(config, 8));
}
