#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
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

/// How much of the weights is read to find values that do harm.
enum class ValueChecks {
  loading,  ///< what loading needs: scale bytes must not be 255 (NaN), a token's experts must
            ///< exist, what must_be_finite() must be
  all,      ///< also every bf16, f32 and fp8 value must be finite
};

/// Whether loading refuses a value of this tensor that is NaN or infinite: parameters that every
/// token meets (norms, biases, sinks, hyper-connections, gates, compressors). In V4-Flash
/// they are half a percent of the bytes. Rows of the vocabulary are not among them: NaN there stays
/// with its token, and is counted.
bool must_be_finite(const TensorSpec& spec);

/// Whether none of these bf16, f32 or fp8 values is NaN or infinite.
bool all_finite(std::span<const std::byte> values, Dtype dtype);

/// Reads a tensor's bytes where a value can do harm. For other kinds it reads nothing.
/// @param origin where the tensor lies, for the message
/// Error: corrupt; names tensor, row and column.
[[nodiscard]] Result<void> check_values(const TensorView& tensor, const TensorSpec& spec,
                                        const ModelConfig& config, std::string_view origin,
                                        ValueChecks checks);

/// check_values for every tensor that the config implies, in parallel.
/// @param threads at least 1
void check_all_values(const Checkpoint& checkpoint, ValueChecks checks, int threads,
                      Problems& problems);

}  // namespace ingot
