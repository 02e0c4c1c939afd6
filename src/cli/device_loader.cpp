#include "src/cli/device_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/shared_library.hpp"
#include "runtime/comm/peer_check.hpp"
#include "src/cli/byte_progress.hpp"
#include "src/cli/card_tuning.hpp"
#include "src/cli/local_cards.hpp"
#include "src/executor/device_engine.hpp"
#include "src/executor/memory_costs.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tuner/tune.hpp"

namespace ingot {
namespace {

/// The steps that a run with these options may make, but for the wide ones: their trials take
/// longer than a first run should wait, and are left to `ingot prewarm`.
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
  return trials::deployed_buckets(
      powers(std::min(options.max_batch, kMostNarrowRows)),
      powers(std::min(step_rows_of(options.prefill_chunk), kMostNarrowRows)), contexts,
      can_sample(config));
}

}  // namespace

namespace {

/// All ranks' cards, where they reach each other's memory: through NCCL exchanges are launched in
/// parts, of which there is nothing to tune.
std::vector<int> tuned_devices(const std::vector<cu::Context>& contexts, bool has_nccl) {
  std::vector<int> devices;
  for (const cu::Context& context : contexts)
    devices.push_back(context.device().ordinal);
  if (has_nccl) devices.resize(1);
  return devices;
}

/// How much of the weights all ranks have loaded.
class RanksProgress {
 public:
  explicit RanksProgress(std::size_t ranks)
      : done_(ranks), progress_("loading", Progress::standard_error()) {}

  executor::LoadProgress of(std::size_t rank) {
    return [this, rank](std::uint64_t done, std::uint64_t total) {
      done_[rank] = done;
      std::uint64_t all = 0;
      for (const auto& one : done_)
        all += one;
      progress_.update(all, total * done_.size());
    };
  }

 private:
  std::vector<std::atomic<std::uint64_t>> done_;
  ByteProgress progress_;
};

}  // namespace

Result<void> check_overrides(const Overrides& overrides, const ModelConfig& config, int tp_size,
                             const std::vector<StepBucket>& buckets,
                             const cu::DeviceLimits& limits) {
  if (overrides.empty()) return {};
  auto plan = trials::tuning_plan(config, tp_size, buckets, limits, overrides);
  if (!plan) return Unexpected(plan.error());
  std::vector<TuningRequest> all = std::move(plan->requests);
  all.insert(all.end(), plan->collectives.begin(), plan->collectives.end());
  const auto sentences = overrides.check(all);
  if (!sentences) return Unexpected(sentences.error());
  for (const std::string& sentence : *sentences)
    log::info("{}", sentence);
  return {};
}

Result<std::vector<DeviceRank>> make_ranks(std::vector<cu::Context> contexts,
                                           const MakeWeights& make) {
  const std::size_t size = contexts.size();
  std::vector<std::optional<executor::DeviceWeights>> weights(size);
  std::vector<std::optional<Error>> errors(size);
  const auto make_one = [&](std::size_t rank) {
    try {
      contexts[rank].make_current();
      auto made = make(contexts[rank], static_cast<int>(rank));
      if (made) {
        weights[rank].emplace(std::move(*made));
      } else {
        errors[rank] = made.error();
      }
    } catch (const EngineError& error) {
      errors[rank] = error.error();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t rank = 1; rank < size; ++rank)
      others.emplace_back([&, rank] { make_one(rank); });
    make_one(0);
  }
  for (auto& error : errors) {
    if (error) return Unexpected(std::move(*error));
  }
  std::vector<DeviceRank> ranks;
  for (std::size_t rank = 0; rank < size; ++rank)
    ranks.push_back({std::move(contexts[rank]), std::move(*weights[rank])});
  ranks.front().context.make_current();
  return ranks;
}

Result<std::shared_ptr<const nccl::NcclApi>> exchange_carrier(
    const std::vector<cu::Context>& contexts, const KernelCacheOptions& cache) {
  const auto broken = find_broken_peers(contexts);
  if (!broken) return nullptr;
  auto nccl = nccl::NcclApi::open(library_search_path(cache.library_dirs));
  if (!nccl) {
    return fail(ErrorCode::not_found, fmt::format("{}; and NCCL, which could do without: {}",
                                                  *broken, nccl.error().message));
  }
  log::warn("{}; going through NCCL {}, which is slower", *broken, (*nccl)->version_text());
  return std::move(*nccl);
}

Result<std::unique_ptr<Engine>> load_device_engine(const Checkpoint& checkpoint,
                                                   const DeviceLoadOptions& options) {
  auto driver = cu::DriverApi::open(library_search_path(options.cache.library_dirs));
  if (!driver) return Unexpected(driver.error());
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  try {
    std::vector<cu::Context> contexts;
    for (const int device : options.devices)
      contexts.push_back(cu::Context::retain(*driver, device));
    auto nccl = exchange_carrier(contexts, options.cache);
    if (!nccl) return Unexpected(nccl.error());
    auto store = open_kernel_store(options.cache, threads);
    if (!store) return Unexpected(store.error());
    auto card = card_of(**driver, contexts[0].device());
    if (!card) return Unexpected(card.error());
    KernelSource source{
        .kernels = std::move(*store),
        .records = open_tuning_store(options.cache),
        .device = std::move(card->device),
        .policy = policy_text(SearchPolicy{}, MeasurePolicy{}),
        .overrides = options.overrides,
    };
    const ModelConfig& config = checkpoint.config();
    const int tp_size = static_cast<int>(contexts.size());
    if (auto fit = check_overrides(options.overrides, config, tp_size, buckets_of(options, config),
                                   cu::limits_of(contexts.front().device()));
        !fit) {
      return Unexpected(fit.error());
    }
    const std::int64_t max_context =
        options.max_context > 0 ? options.max_context : config.max_position_embeddings;
    for (const cu::Context& context : contexts) {
      const auto plan = executor::plan_rank_memory(
          fmt::format("loading the model onto GPU {}, {}", context.device().ordinal,
                      context.device().name),
          config, tp_size, {.sequences = options.max_sequences, .max_context = max_context},
          step_rows_of(options.prefill_chunk), context.free_bytes());
      if (!plan) return Unexpected(plan.error());
    }
    tune_first_run(
        {.cache = options.cache,
         .config_json = checkpoint.directory() / "config.json",
         .config = config,
         .tp_size = tp_size,
         .buckets = buckets_of(options, config),
         .card = {.limits = cu::limits_of(contexts.front().device()), .device = source.device},
         .devices = tuned_devices(contexts, *nccl != nullptr),
         .jobs = threads,
         .budget_s = options.deterministic ? 0 : options.tuning_budget_s},
        *source.kernels, *source.records);
    RanksProgress progress(contexts.size());
    auto ranks = make_ranks(std::move(contexts), [&](const cu::Context& context, int rank) {
      return executor::DeviceWeights::load(
          context, checkpoint,
          {.tp_rank = rank, .tp_size = tp_size, .threads = std::max(1, threads / tp_size)},
          progress.of(static_cast<std::size_t>(rank)));
    });
    if (!ranks) return Unexpected(ranks.error());
    return std::make_unique<DeviceEngine>(
        std::move(*ranks), checkpoint.config(), std::move(source),
        DeviceOptions{.max_context = options.max_context,
                      .max_sequences = options.max_sequences,
                      .step_rows = options.deterministic ? kBatchFreeRows
                                                         : step_rows_of(options.prefill_chunk),
                      .jobs = threads,
                      .deterministic = options.deterministic,
                      .nccl = std::move(*nccl)});
  } catch (const EngineError& error) {
    return Unexpected(error.error());
  }
}

}  // namespace ingot
