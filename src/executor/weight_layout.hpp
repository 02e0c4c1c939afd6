#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/checkpoint/model_config.hpp"
#include "src/executor/device_weights.hpp"
#include "src/weights/tensor_table.hpp"

/// Where everything of a rank lies in the one block of device memory that holds its weights.
namespace ingot::executor {

/// How a part's bytes follow from stored tensors.
enum class WeightLayout {
  rows,           ///< the range's rows, one behind the other: bf16, f32, scales of FP8 blocks
  fp8_tiles,      ///< kernel_templates/fp8_linear.args.h
  token_experts,  ///< i64 -> u16
  gate_up_jobs,   ///< w1 and w3 of every expert: kernel_templates/moe_weight_tiles.hpp
  down_jobs,      ///< w2 of every expert, likewise
  frequencies,    ///< made from the config: rope of layers of ratio 0, or of all others
};

/// One array of the rank in device memory.
struct WeightPart {
  WeightLayout layout{};
  TensorSpec tensor;         ///< what it is made of; of jobs w1 or w2 of expert 0
  TensorRange range;         ///< the rank's part of `tensor`
  int experts = 1;           ///< matrices like `tensor` that follow one another
  int ratio = 0;             ///< of frequencies
  std::uint64_t offset = 0;  ///< in the block, a multiple of 256
  std::uint64_t bytes = 0;

  /// The part is made in whole strips of so many of the range's rows.
  int strip_rows() const;
  /// Rows in the part: the range's, and of experts' gate and up zeros behind them.
  std::int64_t placed_rows() const;
  /// Bytes in the part of a strip.
  std::uint64_t strip_bytes() const;
};

/// What DeviceWeights shows; addresses are base + offset.
struct WeightViews {
  Bf16Matrix embedding, head;
  int first_token = 0;
  const kernels::bf16* norm = nullptr;
  HyperConnection hc_head;
  std::vector<Layer> layers;
  std::optional<DraftBlock> draft;
  const float* plain_frequencies = nullptr;
  const float* compress_frequencies = nullptr;
};

struct WeightPlacement {
  ModelConfig config;             ///< with no more layers than were asked for
  std::vector<WeightPart> parts;  ///< by ascending offset
  WeightViews views;
  std::uint64_t bytes = 0;  ///< of the block
};

/// Places the weights of a rank, from the config alone.
/// @param base  device address of the block, 256-byte aligned; 0 before there is one
/// Throws EngineError: invalid_argument for a rank or TP size that the model does not have,
/// unsupported for a matrix that is not whole tiles.
WeightPlacement place_weights(const ModelConfig& config, const WeightOptions& options,
                              std::uint64_t base);

}  // namespace ingot::executor
