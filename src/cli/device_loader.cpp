#include "src/cli/device_loader.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/shared_library.hpp"
#include "src/cli/local_cards.hpp"
#include "src/executor/device_engine.hpp"
#include "tuner/tune.hpp"

namespace ingot {

Result<std::unique_ptr<Engine>> load_device_engine(const Checkpoint& checkpoint,
                                                   const DeviceLoadOptions& options) {
  auto driver = cu::DriverApi::open(library_search_path(options.cache.library_dirs));
  if (!driver) return Unexpected(driver.error());
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  try {
    cu::Context context = cu::Context::retain(*driver, 0);
    auto store = open_kernel_store(options.cache, threads);
    if (!store) return Unexpected(store.error());
    auto card = card_of(**driver, context.device());
    if (!card) return Unexpected(card.error());
    KernelSource source{
        .kernels = std::move(*store),
        .records = open_tuning_store(options.cache),
        .device = std::move(card->device),
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
