#include "tests/gpu/device_model.hpp"

#include <algorithm>
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

std::shared_ptr<jit::KernelStore> shared_store() {
  static const TempDir folder;
  static const auto store = std::make_shared<jit::KernelStore>(
      kernels::embedded_templates(),
      std::shared_ptr<jit::Compiler>(new jit::CompilePool(jit::CompilePool::with_nvrtc(
          value_or_throw(jit::find_nvrtc(library_directories())), cores()))),
      jit::KernelStore::Options{.directories = {folder.path()}, .frozen = false});
  return store;
}

}  // namespace

std::optional<cu::Context> gpu_context_or_skip() {
  auto driver = driver_or_skip(1);
  if (!driver) return std::nullopt;
  return cu::Context::retain(std::move(driver), 0);
}

KernelSource kernel_source(const cu::Context& context) {
  const cu::DeviceInfo& card = context.device();
  return {.kernels = shared_store(),
          .records = nullptr,
          .device = {.name = card.name,
                     .arch = value_or_throw(jit::arch_of(card.compute_major, card.compute_minor)),
                     .sm_count = card.sm_count,
                     .driver_branch = "test"},
          .policy = {},
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
