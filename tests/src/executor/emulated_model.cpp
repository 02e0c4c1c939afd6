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

std::unique_ptr<DeviceEngine> emulated_engine(
    const std::vector<std::shared_ptr<const cu::DriverApi>>& drivers, const Checkpoint& checkpoint,
    int peer_limit_ms, int max_sequences) {
  std::vector<DeviceRank> ranks;
  for (std::size_t rank = 0; rank < drivers.size(); ++rank) {
    auto context = cu::Context::retain(drivers[rank], 0);
    auto weights =
        value_or_throw(executor::DeviceWeights::load(context, checkpoint,
                                                     {.tp_rank = static_cast<int>(rank),
                                                      .tp_size = static_cast<int>(drivers.size()),
                                                      .threads = 2}));
    ranks.push_back({std::move(context), std::move(weights)});
  }
  return std::make_unique<DeviceEngine>(std::move(ranks), checkpoint.config(), emulated_kernels(),
                                        DeviceOptions{.max_context = 2048,
                                                      .max_sequences = max_sequences,
                                                      .jobs = 2,
                                                      .graphs = false,
                                                      .peer_limit_ms = peer_limit_ms});
}

}  // namespace ingot::test
