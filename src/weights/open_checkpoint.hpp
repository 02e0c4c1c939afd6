#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.hpp"
#include "src/weights/tensor_table.hpp"

namespace ingot {

/// Opens a checkpoint to run it: Checkpoint::open, and every tensor that the config implies is
/// there with its dtype and shape. What is ignored (a DSpark draft) is logged in one line.
/// Reads headers only; weights are checked when they are loaded (check_values).
/// Error: everything that is wrong, in one message, a line each.
[[nodiscard]] Result<Checkpoint> open_checkpoint(const std::filesystem::path& directory);

/// Adds every missing or wrong tensor. Needs has_config().
/// @return one line for each kind of tensor that is there and will not be read
std::vector<std::string> check_complete(const Checkpoint& checkpoint, Problems& problems);

/// Reads a tensor's bytes where a value can do harm: scale bytes must not be 255 (NaN), the experts
/// of a token must exist. For other kinds it reads nothing. Call when weights are
/// loaded.
/// @param origin where the tensor lies, for the message
/// Error: corrupt; names tensor, row and column.
[[nodiscard]] Result<void> check_values(const TensorView& tensor, const TensorSpec& spec,
                                        const ModelConfig& config, std::string_view origin);

/// check_values for every tensor that the config implies, in parallel.
/// @param threads at least 1
void check_all_values(const Checkpoint& checkpoint, int threads, Problems& problems);

}  // namespace ingot
