#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/cli/kernel_cache.hpp"
#include "src/engine/engine.hpp"

namespace ingot {

struct DeviceLoadOptions {
  KernelCacheOptions cache;
  std::int64_t max_context = 0;
  std::vector<int> devices{0};  ///< GPUs of the tensor parallel ranks
  int max_sequences = 64;       ///< sequences and kept copies at a time
  int max_batch = 8;            ///< sequences of a step
  int prefill_chunk = 512;      ///< tokens of a prompt in one step
  double tuning_budget_s = 0;   ///< that a first run may spend on choosing kernels
  int threads = 0;              ///< that load weights and wait for compilers; 0 = one per CPU
};

/// Puts a checkpoint onto the GPUs, each rank's share at the same time. Progress of long loads goes
/// to standard error. Where cards cannot use each other's memory, ranks go through NCCL, and a line
/// says so.
/// Errors: those of executor::DeviceWeights::load, and what DeviceEngine throws; not_found where
/// NCCL is needed and missing.
[[nodiscard]] Result<std::unique_ptr<Engine>> load_device_engine(const Checkpoint& checkpoint,
                                                                 const DeviceLoadOptions& options);

}  // namespace ingot
