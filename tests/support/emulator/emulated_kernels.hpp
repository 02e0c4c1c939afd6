#pragma once

#include <filesystem>
#include <memory>

#include "runtime/jit/kernel_store.hpp"
#include "src/executor/device_engine.hpp"

namespace ingot::test {

/// Multiprocessors of the card that emulated_source() is for.
constexpr int kEmulatedMultiprocessors = 4;

/// The source tree, which INGOT_TEST_SOURCE names.
std::filesystem::path emulated_source_root();

/// Kernels for the emulator, kept in a folder.
std::shared_ptr<jit::KernelStore> emulated_kernels_in(const std::filesystem::path& folder);

/// The same, compiled once for all test cases of a program; and their folder.
std::shared_ptr<jit::KernelStore> emulated_kernels();
const std::filesystem::path& emulated_kernel_folder();

/// The same for a device engine; without tuning records.
KernelSource emulated_source();

}  // namespace ingot::test
