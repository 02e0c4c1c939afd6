#include "tests/src/executor/emulated_model.hpp"

#include <cstdlib>
#include <filesystem>

#include "kernel_templates/family.hpp"
#include "tests/support/emulator/emulated_card.hpp"

namespace ingot::test {
namespace {

std::filesystem::path source_root() {
  const char* root = std::getenv("INGOT_TEST_SOURCE");
  return root != nullptr ? root : ".";
}

}  // namespace

KernelSource emulated_kernels() {
  static const TempDir folder;
  static const auto store = std::make_shared<jit::KernelStore>(
      kernels::embedded_templates(),
      std::shared_ptr<jit::Compiler>(
          std::make_shared<EmulatorCompiler>(source_root(), folder.path())),
      jit::KernelStore::Options{.directories = {folder.path()}, .frozen = false});
  return {.kernels = store,
          .records = nullptr,
          .device = {.name = "emulated",
                     .arch = "sm_90a",
                     .sm_count = kEmulatedMultiprocessors,
                     .driver_branch = "none"},
          .policy = {},
          .overrides = {}};
}

std::unique_ptr<DeviceEngine> emulated_engine(const HostCard& card, const SyntheticModel& model,
                                              int max_sequences) {
  auto context = cu::Context::retain(card.driver(), 0);
  const Checkpoint checkpoint = model.open();
  auto weights = value_or_throw(executor::DeviceWeights::load(context, checkpoint, {.threads = 2}));
  return std::make_unique<DeviceEngine>(
      std::move(context), checkpoint.config(), std::move(weights), emulated_kernels(),
      DeviceOptions{
          .max_context = 2048, .max_sequences = max_sequences, .jobs = 2, .graphs = false});
}

}  // namespace ingot::test
