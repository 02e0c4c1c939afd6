#include "src/executor/memory_costs.hpp"

#include <algorithm>

#include "src/executor/device_state.hpp"
#include "src/executor/device_weights.hpp"
#include "src/executor/step_buffers.hpp"

namespace ingot::executor {
namespace {

/// The driver's own, kernels' code, graphs, and scratch that grows with the buckets in use.
constexpr std::uint64_t kReserveBytes = std::uint64_t{1} << 30;

/// Buffers of wide steps may take this share of what the weights leave.
constexpr std::uint64_t kMostBufferShare = 4;

Result<MemoryPlan> plan(const std::string& attempt, const ModelConfig& config, int tp_size,
                        const MemoryWish& wish, int most_rows, std::uint64_t weights,
                        std::uint64_t gpu_bytes) {
  const std::uint64_t left = gpu_bytes > weights ? gpu_bytes - weights : 0;
  for (int rows = std::max(most_rows, kMostNarrowRows);; rows /= 2) {
    MemoryCosts costs = state_memory_costs(config, wish.max_context, rows);
    costs.weights = weights;
    costs.buffers += StepMemory::bytes(config, tp_size, wish.max_context, rows);
    const bool last = rows / 2 < kMostNarrowRows;
    if (!last && costs.buffers > left / kMostBufferShare) continue;
    auto made = plan_memory(attempt, costs, wish, gpu_bytes);
    if (!made && !last) continue;
    if (made) made->step_rows = rows;
    return made;
  }
}

}  // namespace

MemoryCosts state_memory_costs(const ModelConfig& config, std::int64_t max_context, int step_rows) {
  const StateCosts state = state_costs(config, max_context);
  return {.buffers = pass_window_bytes(config, step_rows),
          .slot = state.slot,
          .csa_page = state.csa_page,
          .hca_page = state.hca_page,
          .reserve = kReserveBytes};
}

Result<MemoryPlan> plan_rank_memory(const std::string& attempt, const ModelConfig& config,
                                    int tp_size, const MemoryWish& wish, int most_rows,
                                    std::uint64_t gpu_bytes) {
  return plan(attempt, config, tp_size, wish, most_rows,
              device_weight_bytes(config, {.tp_size = tp_size}), gpu_bytes);
}

int step_rows_beside_weights(const ModelConfig& config, int tp_size, const MemoryWish& wish,
                             int most_rows, std::uint64_t free_bytes) {
  const auto made = plan("", config, tp_size, wish, most_rows, 0, free_bytes);
  return made ? made->step_rows : kMostNarrowRows;
}

}  // namespace ingot::executor
