#include "tests/support/emulator/emulated_kernels.hpp"

#include <cstdlib>

#include "kernel_templates/family.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {

std::filesystem::path emulated_source_root() {
  const char* root = std::getenv("INGOT_TEST_SOURCE");
  return root != nullptr ? root : ".";
}

std::shared_ptr<jit::KernelStore> emulated_kernels_in(const std::filesystem::path& folder) {
  return std::make_shared<jit::KernelStore>(
      kernels::embedded_templates(),
      std::shared_ptr<jit::Compiler>(
          std::make_shared<EmulatorCompiler>(emulated_source_root(), folder)),
      jit::KernelStore::Options{.directories = {folder}, .frozen = false});
}

const std::filesystem::path& emulated_kernel_folder() {
  static const TempDir folder;
  return folder.path();
}

std::shared_ptr<jit::KernelStore> emulated_kernels() {
  static const auto store = emulated_kernels_in(emulated_kernel_folder());
  return store;
}

KernelSource emulated_source() {
  return {.kernels = emulated_kernels(),
          .records = nullptr,
          .device = {.name = "emulated",
                     .arch = "sm_90a",
                     .sm_count = kEmulatedMultiprocessors,
                     .driver_branch = "none"},
          .policy = {},
          .overrides = {}};
}

}  // namespace ingot::test
