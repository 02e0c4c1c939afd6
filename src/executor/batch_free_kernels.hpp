#pragma once

#include "src/executor/kernel_library.hpp"
#include "src/plan/step_kernels.hpp"

namespace ingot::executor {

/// Wants the kernels of a batch-free step: those that serve the widest such step without a tuning,
/// launched for this one. So a row's sums are made by the same code in the same order in every
/// step, whatever its size.
/// @param one_shot  as for step_problems
StepKernels want_batch_free(KernelLibrary& library, const ModelConfig& config, int tp_size,
                            const StepBucket& bucket, bool one_shot);

}  // namespace ingot::executor
