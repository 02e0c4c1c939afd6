#include "tests/gpu/device_model.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "kernel_templates/family.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "src/cli/kernel_cache.hpp"
#include "src/cli/local_cards.hpp"
#include "src/executor/step_trace.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/temp_dir.hpp"
#include "tuner/tune.hpp"

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

KernelSource traced_kernel_source(const cu::Context& context) {
  static const auto store = open_store(executor::traced_templates(kernels::embedded_templates()));
  return source_of(context, store);
}

KernelSource tuned_kernel_source(const cu::Context& context) {
  const char* folder = std::getenv("INGOT_TEST_CACHE");
  const KernelCacheOptions cache{.cache_dirs = {folder != nullptr ? folder : ""},
                                 .library_dirs = library_directories(),
                                 .template_dir = {},
                                 .frozen = false};
  return {.kernels = value_or_throw(open_kernel_store(cache, cores())),
          .records = open_tuning_store(cache),
          .device = value_or_throw(card_of(context.driver(), context.device())).device,
          .policy = policy_text(SearchPolicy{}, MeasurePolicy{}),
          .overrides = {}};
}

executor::DeviceWeights load_weights(const cu::Context& context, const Checkpoint& checkpoint) {
  return value_or_throw(executor::DeviceWeights::load(context, checkpoint, {.threads = cores()}));
}

std::unique_ptr<DeviceEngine> device_engine(const Checkpoint& checkpoint, DeviceOptions options) {
  auto context = gpu_context_or_skip();
  if (!context) return nullptr;
  options.jobs = cores();
  auto source = kernel_source(*context);
  auto weights = load_weights(*context, checkpoint);
  return std::make_unique<DeviceEngine>(std::move(*context), checkpoint.config(),
                                        std::move(weights), std::move(source), options);
}

}  // namespace ingot::test
