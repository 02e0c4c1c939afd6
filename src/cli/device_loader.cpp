#include "src/cli/device_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/shared_library.hpp"
#include "runtime/cuda/driver_branch.hpp"
#include "runtime/jit/arch.hpp"
#include "src/executor/device_engine.hpp"
#include "tuner/tune.hpp"

namespace ingot {

Result<std::unique_ptr<Engine>> load_device_engine(const Checkpoint& checkpoint,
                                                   const DeviceLoadOptions& options) {
  std::vector<std::filesystem::path> directories = options.cache.library_dirs;
  for (auto& usual : usual_library_directories())
    directories.push_back(std::move(usual));
  auto driver = cu::DriverApi::open(directories);
  if (!driver) return Unexpected(driver.error());
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  try {
    cu::Context context = cu::Context::retain(*driver, 0);
    const cu::DeviceInfo& card = context.device();
    auto store = open_kernel_store(options.cache, threads);
    if (!store) return Unexpected(store.error());
    const auto arch = jit::arch_of(card.compute_major, card.compute_minor);
    if (!arch) return Unexpected(arch.error());
    KernelSource source{
        .kernels = std::move(*store),
        .records = open_tuning_store(options.cache),
        .device = {.name = card.name,
                   .arch = *arch,
                   .sm_count = card.sm_count,
                   .driver_branch =
                       cu::driver_branch(cu::driver_module_text(), (*driver)->version())},
        .policy = policy_text(SearchPolicy{}, MeasurePolicy{}),
        .overrides = {},
    };
    auto weights = executor::DeviceWeights::load(context, checkpoint, {.threads = threads});
    if (!weights) return Unexpected(weights.error());
    return std::make_unique<DeviceEngine>(std::move(context), checkpoint.config(),
                                          std::move(*weights), std::move(source),
                                          DeviceOptions{.max_context = options.max_context,
                                                        .max_sequences = options.max_sequences,
                                                        .jobs = threads});
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
}

}  // namespace ingot
