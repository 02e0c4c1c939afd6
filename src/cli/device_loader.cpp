#include "src/cli/device_loader.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/shared_library.hpp"
#include "src/cli/card_tuning.hpp"
#include "src/cli/local_cards.hpp"
#include "src/executor/device_engine.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tuner/tune.hpp"

namespace ingot {
namespace {

/// The steps that a run with these options may make.
std::vector<StepBucket> buckets_of(const DeviceLoadOptions& options, const ModelConfig& config) {
  const std::int64_t most =
      options.max_context > 0 ? options.max_context : config.max_position_embeddings;
  std::vector<std::int64_t> contexts;
  for (std::int64_t context = 1; contexts.empty() || contexts.back() < most;
       context = contexts.back() + 1)
    contexts.push_back(bucket_of({.context = context}, most).context);
  const auto powers = [](int last) {
    std::vector<int> values;
    for (int value = 1; values.empty() || values.back() < last; value *= 2)
      values.push_back(value);
    return values;
  };
  return trials::deployed_buckets(powers(std::min(options.max_batch, kMostStepRows)),
                                  powers(std::min(options.prefill_chunk, kMostStepRows)), contexts);
}

}  // namespace

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
    tune_first_run({.cache = options.cache,
                    .config_json = checkpoint.directory() / "config.json",
                    .config = checkpoint.config(),
                    .buckets = buckets_of(options, checkpoint.config()),
                    .card = {.limits = cu::limits_of(context.device()), .device = source.device},
                    .device = 0,
                    .jobs = threads,
                    .budget_s = options.tuning_budget_s},
                   *source.kernels, *source.records);
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
