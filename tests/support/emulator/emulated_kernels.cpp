#include "tests/support/emulator/emulated_kernels.hpp"

#include <cstdlib>

#include "kernel_templates/family.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {

std::shared_ptr<jit::KernelStore> emulated_kernels() {
  static const TempDir folder;
  static const auto store = [] {
    const char* root = std::getenv("INGOT_TEST_SOURCE");
    return std::make_shared<jit::KernelStore>(
        kernels::embedded_templates(),
        std::shared_ptr<jit::Compiler>(
            std::make_shared<EmulatorCompiler>(root != nullptr ? root : ".", folder.path())),
        jit::KernelStore::Options{.directories = {folder.path()}, .frozen = false});
  }();
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
