#include "tests/support/made_checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/checkpoint/model_config.hpp"
#include "src/checkpoint/safetensors.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {
namespace {

/// One block ("layers.3", "mtp.0") to a shard; embed alone in shard 0, other globals in the last.
std::size_t shard_of(const TensorSpec& spec, const ModelConfig& config, std::size_t shards) {
  const auto last = shards - 1;
  if (spec.name == "embed.weight") return 0;
  const bool is_layer = spec.name.starts_with("layers.");
  if (!is_layer && !spec.name.starts_with("mtp.")) {
    return std::min(last, static_cast<std::size_t>(config.num_layers) + 1);
  }
  const auto block = std::stoul(spec.name.substr(spec.name.find('.') + 1));
  const auto place = is_layer ? block + 1 : static_cast<std::size_t>(config.num_layers) + 2 + block;
  return std::min(last, place);
}

}  // namespace

std::string safetensors_bytes(std::string_view header_json, std::string_view data) {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out += static_cast<char>((std::uint64_t{header_json.size()} >> (8 * i)) & 0xFF);
  }
  out += header_json;
  out += data;
  return out;
}

std::string safetensors_header(const std::vector<TensorSpec>& tensors, std::uint64_t& data_bytes) {
  std::string header = "{";
  data_bytes = 0;
  for (const TensorSpec& spec : tensors) {
    const std::uint64_t bytes = tensor_bytes(spec.shape, spec.dtype).value();
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", spec.name, dtype_name(spec.dtype),
                          fmt::join(spec.shape, ","), data_bytes, data_bytes + bytes);
    data_bytes += bytes;
  }
  return header + "}";
}

void write_sparse_checkpoint(const std::filesystem::path& directory, const std::string& config_json,
                             int shards, bool with_index) {
  const ModelConfig config = value_or_throw(parse_model_config(config_json, "config.json"));
  std::vector<std::vector<TensorSpec>> parts(static_cast<std::size_t>(shards));
  for (TensorSpec& spec : tensor_table(config)) {
    const std::size_t shard = shard_of(spec, config, parts.size());
    parts[shard].push_back(std::move(spec));
  }
  nlohmann::json index;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = shards == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards);
    std::uint64_t data_bytes = 0;
    const std::string head = safetensors_bytes(safetensors_header(parts[i], data_bytes), "");
    write_file(directory / name, head);
    std::filesystem::resize_file(directory / name, head.size() + data_bytes);
    for (const TensorSpec& spec : parts[i])
      index["weight_map"][spec.name] = name;
  }
  if (with_index) write_file(directory / "model.safetensors.index.json", index.dump());
  write_file(directory / "config.json", config_json);
}

}  // namespace ingot::test
