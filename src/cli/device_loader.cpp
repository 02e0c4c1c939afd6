#include "src/cli/device_loader.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/shared_library.hpp"
#include "src/cli/byte_progress.hpp"
#include "src/cli/local_cards.hpp"
#include "src/executor/device_engine.hpp"
#include "src/executor/memory_costs.hpp"
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
    const ModelConfig& config = checkpoint.config();
    const std::int64_t max_context =
        options.max_context > 0 ? options.max_context : config.max_position_embeddings;
    const auto plan = plan_memory("loading the model onto " + context.device().name,
                                  executor::memory_costs(config, 1, max_context),
                                  {.sequences = options.max_sequences, .max_context = max_context},
                                  context.free_bytes());
    if (!plan) return Unexpected(plan.error());
    ByteProgress progress("loading", Progress::standard_error());
    auto weights = executor::DeviceWeights::load(
        context, checkpoint, {.threads = threads},
        [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); });
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
