#pragma once

#include <cstdint>

#include "src/checkpoint/model_config.hpp"
#include "src/plan/memory_plan.hpp"

namespace ingot::executor {

/// What a rank takes on a GPU besides weights and buffers: state and reserve.
/// @param step_rows  of the largest step
MemoryCosts state_memory_costs(const ModelConfig& config, std::int64_t max_context, int step_rows);

/// What a rank of the model takes on a GPU, by the arithmetic by which it is allocated: with steps
/// of up to `most_rows` rows, a power of two, or as many as memory has to spare: half, a quarter
/// and so on, down to kMostNarrowRows, until their buffers take at most a quarter of what the
/// weights leave. MemoryPlan::step_rows says how many. Errors: as plan_memory(). Throws
/// EngineError: as device_weight_bytes().
[[nodiscard]] Result<MemoryPlan> plan_rank_memory(const std::string& attempt,
                                                  const ModelConfig& config, int tp_size,
                                                  const MemoryWish& wish, int most_rows,
                                                  std::uint64_t gpu_bytes);

/// The same where the weights are on the card already: the steps' rows alone.
int step_rows_beside_weights(const ModelConfig& config, int tp_size, const MemoryWish& wish,
                             int most_rows, std::uint64_t free_bytes);

}  // namespace ingot::executor
