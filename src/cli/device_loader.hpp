#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "src/checkpoint/checkpoint.hpp"
#include "src/cli/kernel_cache.hpp"
#include "src/engine/engine.hpp"
#include "src/executor/device_engine.hpp"
#include "src/plan/step_bucket.hpp"
#include "tuner/overrides.hpp"

namespace ingot {

struct DeviceLoadOptions {
  KernelCacheOptions cache;
  std::int64_t max_context = 0;
  std::vector<int> devices{0};  ///< GPUs of the tensor parallel ranks
  int max_sequences = 64;       ///< sequences and kept copies at a time
  int max_batch = 8;            ///< sequences of a step
  int prefill_chunk = 2048;     ///< tokens of a prompt in one step
  double tuning_budget_s = 0;   ///< that a first run may spend on choosing kernels
  Overrides overrides = {};     ///< kernels that the user forces
  bool deterministic = false;   ///< DeviceOptions::deterministic; then nothing is tuned
  int threads = 0;              ///< that load weights and wait for compilers; 0 = one per CPU
};

/// Whether what a user forces fits the steps of these buckets; says where a pin has no say.
/// Errors: those of Overrides::check.
[[nodiscard]] Result<void> check_overrides(const Overrides& overrides, const ModelConfig& config,
                                           int tp_size, const std::vector<StepBucket>& buckets,
                                           const cu::DeviceLimits& limits);

/// Makes one rank's weights; its context is current.
using MakeWeights =
    std::function<Result<executor::DeviceWeights>(const cu::Context& context, int rank)>;

/// All ranks' weights, made at the same time, each on a thread of its own; the first one's context
/// is current afterwards. Error: the first rank's that has one.
[[nodiscard]] Result<std::vector<DeviceRank>> make_ranks(std::vector<cu::Context> contexts,
                                                         const MakeWeights& make);

/// What carries words between ranks: null where all reach each other's memory and it works, else
/// NCCL, and a line says so. Error: not_found where NCCL is needed and missing.
[[nodiscard]] Result<std::shared_ptr<const nccl::NcclApi>> exchange_carrier(
    const std::vector<cu::Context>& contexts, const KernelCacheOptions& cache);

/// Puts a checkpoint onto the GPUs, each rank's share at the same time. Progress of long loads goes
/// to standard error. Where cards cannot use each other's memory, ranks go through NCCL, and a line
/// says so.
/// Errors: those of executor::DeviceWeights::load, and what DeviceEngine throws; not_found where
/// NCCL is needed and missing; invalid_argument for overrides that fit no kernel of the plan, or
/// leave none.
[[nodiscard]] Result<std::unique_ptr<Engine>> load_device_engine(const Checkpoint& checkpoint,
                                                                 const DeviceLoadOptions& options);

}  // namespace ingot
