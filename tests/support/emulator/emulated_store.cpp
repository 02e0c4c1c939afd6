#include "tests/support/emulator/emulated_store.hpp"

#include <cstdlib>

#include "kernel_templates/family.hpp"
#include "tests/support/emulator/emulated_card.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {

TuningDevice emulated_device() {
  return {.name = "emulated",
          .arch = "sm_90a",
          .sm_count = kEmulatedMultiprocessors,
          .driver_branch = "none"};
}

std::filesystem::path source_root() {
  const char* root = std::getenv("INGOT_TEST_SOURCE");
  return root != nullptr ? root : ".";
}

std::shared_ptr<jit::KernelStore> emulated_store(const std::filesystem::path& folder) {
  return std::make_shared<jit::KernelStore>(
      kernels::embedded_templates(),
      std::shared_ptr<jit::Compiler>(std::make_shared<EmulatorCompiler>(source_root(), folder)),
      jit::KernelStore::Options{.directories = {folder}, .frozen = false});
}

const std::filesystem::path& shared_kernel_folder() {
  static const TempDir folder;
  return folder.path();
}

std::shared_ptr<jit::KernelStore> shared_emulated_store() {
  static const auto store = emulated_store(shared_kernel_folder());
  return store;
}

}  // namespace ingot::test
