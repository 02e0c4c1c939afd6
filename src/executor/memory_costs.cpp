#include "src/executor/memory_costs.hpp"

#include "src/executor/device_state.hpp"
#include "src/executor/device_weights.hpp"
#include "src/executor/step_buffers.hpp"

namespace ingot::executor {
namespace {

/// The driver's own, kernels' code, graphs, and scratch that grows with the buckets in use.
constexpr std::uint64_t kReserveBytes = std::uint64_t{1} << 30;

}  // namespace

MemoryCosts state_memory_costs(const ModelConfig& config, std::int64_t max_context) {
  const StateCosts state = state_costs(config, max_context);
  return {.slot = state.slot,
          .csa_page = state.csa_page,
          .hca_page = state.hca_page,
          .reserve = kReserveBytes};
}

MemoryCosts memory_costs(const ModelConfig& config, int tp_size, std::int64_t max_context) {
  MemoryCosts costs = state_memory_costs(config, max_context);
  costs.weights = device_weight_bytes(config, {.tp_size = tp_size});
  costs.buffers = StepMemory::bytes(config, tp_size, max_context);
  return costs;
}

}  // namespace ingot::executor
