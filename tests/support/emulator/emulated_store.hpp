#pragma once

#include <filesystem>
#include <memory>

#include "runtime/jit/kernel_store.hpp"
#include "tuner/tuning_key.hpp"

namespace ingot::test {

inline constexpr int kEmulatedMultiprocessors = 4;

/// The card that emulated_card() with kEmulatedMultiprocessors shows.
TuningDevice emulated_device();

/// The source tree, from the environment of the test.
std::filesystem::path source_root();

/// Kernels for the emulator, kept in a folder.
std::shared_ptr<jit::KernelStore> emulated_store(const std::filesystem::path& folder);

/// The same for all test cases of a program, each kernel compiled once; its folder.
const std::filesystem::path& shared_kernel_folder();
std::shared_ptr<jit::KernelStore> shared_emulated_store();

}  // namespace ingot::test
