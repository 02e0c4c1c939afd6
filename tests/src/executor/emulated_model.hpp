#pragma once

#include <memory>

#include "src/executor/device_engine.hpp"
#include "tests/src/reference/synthetic_model.hpp"
#include "tests/support/host_card.hpp"

namespace ingot::test {

constexpr int kEmulatedMultiprocessors = 4;

/// Kernels compiled for the emulator, once for all test cases of a program.
KernelSource emulated_kernels();

/// The device engine on a card whose kernels run on the emulator.
std::unique_ptr<DeviceEngine> emulated_engine(const HostCard& card, const SyntheticModel& model,
                                              int max_sequences = 3);

}  // namespace ingot::test
