#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/problems.hpp"

namespace ingot {

/// `model.safetensors.index.json`: which shard holds each tensor.
struct ShardIndex {
  std::map<std::string, std::string, std::less<>> shard_of;  ///< tensor → plain file name
};

/// Reads the index. Every problem is added; a shard name that is a path (`../x`, `/x`) is one.
/// @return nullopt if there was any
std::optional<ShardIndex> parse_shard_index(std::string_view json, std::string_view origin,
                                            Problems& problems);

struct ShardList {
  std::vector<std::filesystem::path> files;  ///< shards that exist, by name
  std::optional<ShardIndex> index;
};

/// Finds the shards of a checkpoint folder: those that its index names, or, without an index, all
/// *.safetensors. Missing shards are all listed, by the index or by the `-of-NNNNN` in the names of
/// the others; so are shards that the index does not know.
ShardList list_shards(const std::filesystem::path& directory, Problems& problems);

}  // namespace ingot
