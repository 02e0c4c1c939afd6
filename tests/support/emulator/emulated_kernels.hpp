#pragma once

#include <memory>

#include "runtime/jit/kernel_store.hpp"
#include "src/executor/device_engine.hpp"

namespace ingot::test {

/// Multiprocessors of the card that emulated_source() is for.
constexpr int kEmulatedMultiprocessors = 4;

/// Kernels for the emulator, compiled once for all test cases of a program. INGOT_TEST_SOURCE names
/// the source tree.
std::shared_ptr<jit::KernelStore> emulated_kernels();

/// The same for a device engine; without tuning records.
KernelSource emulated_source();

}  // namespace ingot::test
