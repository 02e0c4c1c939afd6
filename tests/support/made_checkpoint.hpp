#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/weights/tensor_table.hpp"

namespace ingot::test {

/// A safetensors file as it is written: 8 bytes of length, header, data.
std::string safetensors_bytes(std::string_view header_json, std::string_view data);

/// Header JSON of tensors that follow each other; `data_bytes` receives their total.
std::string safetensors_header(const std::vector<TensorSpec>& tensors, std::uint64_t& data_bytes);

/// Writes a checkpoint of full size without its bytes: config.json, real headers, and data that is
/// a hole in the file, so every value reads as zero. Tensors go to shards as DeepSeek publishes
/// them, one block to a shard: embed in shard 1, the rest in order.
/// @param shards 1 makes model.safetensors, more make model-0000N-of-NNNNN.safetensors
/// @param with_index also writes model.safetensors.index.json
void write_sparse_checkpoint(const std::filesystem::path& directory, const std::string& config_json,
                             int shards, bool with_index);

}  // namespace ingot::test
