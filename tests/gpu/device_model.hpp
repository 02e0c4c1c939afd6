#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/context.hpp"
#include "src/executor/device_engine.hpp"
#include "src/executor/device_weights.hpp"
#include "tests/src/reference/synthetic_model.hpp"

namespace ingot::test {

/// A context on the first GPU; nullopt, after skip() said why, where there is none.
std::optional<cu::Context> gpu_context_or_skip();

/// Kernels compiled by this machine's NVRTC into a cache that lives as long as the test program, so
/// that test cases share them.
KernelSource kernel_source(const cu::Context& context);

executor::DeviceWeights load_weights(const cu::Context& context, const Checkpoint& checkpoint);

/// The device engine on a checkpoint, over the first `tp` GPUs; null, after skip() said why, where
/// there are fewer.
std::unique_ptr<DeviceEngine> device_engine(const Checkpoint& checkpoint, DeviceOptions options,
                                            int tp = 1);
/// The same with made-up weights.
std::unique_ptr<DeviceEngine> synthetic_engine(const ModelConfig& config, DeviceOptions options,
                                               int tp);

/// One step of one sequence.
StepLogits run(Engine& engine, SequenceId sequence, std::span<const TokenId> tokens,
               LogitsOf logits = LogitsOf::all);

/// The Euclidean norm of the difference over that of what is wanted.
double relative_error(std::span<const float> got, std::span<const float> wanted);
/// The upper of two in the middle; there is at least one value.
double median(std::vector<double> values);

}  // namespace ingot::test
