#include "tests/gpu/device_model.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "kernel_templates/family.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/temp_dir.hpp"

namespace ingot::test {
namespace {

int cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::shared_ptr<jit::KernelStore> open_store(jit::SourceTree templates) {
  static const TempDir folder;
  return std::make_shared<jit::KernelStore>(
      std::move(templates),
      std::shared_ptr<jit::Compiler>(new jit::CompilePool(jit::CompilePool::with_nvrtc(
          value_or_throw(jit::find_nvrtc(library_directories())), cores()))),
      jit::KernelStore::Options{.directories = {folder.path()}, .frozen = false});
}

KernelSource source_of(const cu::Context& context, std::shared_ptr<jit::KernelStore> store) {
  const cu::DeviceInfo& card = context.device();
  return {.kernels = std::move(store),
          .records = nullptr,
          .device = {.name = card.name,
                     .arch = value_or_throw(jit::arch_of(card.compute_major, card.compute_minor)),
                     .sm_count = card.sm_count,
                     .driver_branch = "test"},
          .policy = {},
          .overrides = {}};
}

}  // namespace

std::optional<cu::Context> gpu_context_or_skip() {
  auto driver = driver_or_skip(1);
  if (!driver) return std::nullopt;
  return cu::Context::retain(std::move(driver), 0);
}

KernelSource kernel_source(const cu::Context& context) {
  static const auto store = open_store(kernels::embedded_templates());
  return source_of(context, store);
}

executor::DeviceWeights load_weights(const cu::Context& context, const Checkpoint& checkpoint) {
  return value_or_throw(executor::DeviceWeights::load(context, checkpoint, {.threads = cores()}));
}

namespace {

/// @param weights  (context, WeightOptions)
template <class Weights>
std::unique_ptr<DeviceEngine> make_engine(const ModelConfig& config, DeviceOptions options, int tp,
                                          const Weights& weights) {
  const auto driver = driver_or_skip(tp);
  if (!driver) return nullptr;
  std::vector<DeviceRank> ranks;
  for (int rank = 0; rank < tp; ++rank) {
    auto context = cu::Context::retain(driver, rank);
    auto share = value_or_throw(weights(
        context, executor::WeightOptions{.tp_rank = rank, .tp_size = tp, .threads = cores()}));
    ranks.push_back({std::move(context), std::move(share)});
  }
  ranks[0].context.make_current();
  options.jobs = cores();
  auto source = kernel_source(ranks[0].context);
  return std::make_unique<DeviceEngine>(std::move(ranks), config, std::move(source), options);
}

}  // namespace

std::unique_ptr<DeviceEngine> device_engine(const Checkpoint& checkpoint, DeviceOptions options,
                                            int tp) {
  return make_engine(checkpoint.config(), options, tp,
                     [&](const cu::Context& context, const executor::WeightOptions& which) {
                       return executor::DeviceWeights::load(context, checkpoint, which);
                     });
}

std::unique_ptr<DeviceEngine> synthetic_engine(const ModelConfig& config, DeviceOptions options,
                                               int tp) {
  return make_engine(config, options, tp,
                     [&](const cu::Context& context, const executor::WeightOptions& which) {
                       return executor::DeviceWeights::synthetic(context, config, which);
                     });
}

StepLogits run(Engine& engine, SequenceId sequence, std::span<const TokenId> tokens,
               LogitsOf logits) {
  const SequenceStep step{.sequence = sequence, .tokens = tokens, .logits = logits};
  return std::move(engine.step({&step, 1})[0]);
}

double relative_error(std::span<const float> got, std::span<const float> wanted) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(got[i] - wanted[i], 2.0);
    norm += std::pow(wanted[i], 2.0);
  }
  return std::sqrt(difference / norm);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace ingot::test
