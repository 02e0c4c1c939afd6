#pragma once

#include <cstdint>

#include "src/checkpoint/model_config.hpp"
#include "src/plan/memory_plan.hpp"

namespace ingot::executor {

/// What a rank of the model takes on a GPU: the arithmetic by which it is allocated.
/// Throws EngineError: as device_weight_bytes().
MemoryCosts memory_costs(const ModelConfig& config, int tp_size, std::int64_t max_context);

/// The same once weights and buffers are there: state and reserve alone.
MemoryCosts state_memory_costs(const ModelConfig& config, std::int64_t max_context);

}  // namespace ingot::executor
