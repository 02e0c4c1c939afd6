#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "kernel_templates/family.hpp"
#include "runtime/cuda/device_limits.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "src/plan/kernel_requests.hpp"
#include "tests/gpu/device_model.hpp"
#include "tests/src/reference/synthetic_model.hpp"
#include "tests/support/libraries.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::shared_ptr<jit::KernelStore> store_in(const std::filesystem::path& folder, bool frozen) {
  return std::make_shared<jit::KernelStore>(
      kernels::embedded_templates(),
      std::shared_ptr<jit::Compiler>(new jit::CompilePool(jit::CompilePool::with_nvrtc(
          value_or_throw(jit::find_nvrtc(test::library_directories())),
          static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))))),
      jit::KernelStore::Options{.directories = {folder}, .frozen = frozen});
}

/// The default of every kernel of the plan, as `ingot prewarm` compiles it.
void prewarm(jit::KernelStore& store, const ModelConfig& config, const cu::Context& context,
             const std::string& arch) {
  const PlanScope scope{.batch_buckets = {1, 2, 4, 8, 16, 32, 64},
                        .context_buckets = {4096, 32768}};
  const auto sets = value_or_throw(kernel_requests(config, scope, cu::limits_of(context.device())));
  std::atomic<std::size_t> next = 0;
  std::atomic<int> failed = 0;
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < sets.size(); i = next++) {
        const jit::KernelRequest request{
            .variant = sets[i].candidates.front(), .arch = arch, .allow_spills = true};
        if (!store.get(request)) ++failed;
      }
    });
  }
  threads.clear();
  CHECK(failed == 0);
}

}  // namespace

TEST_CASE("after prewarm a frozen engine compiles nothing, whatever it is given", "[gpu][model]") {
  auto context = test::gpu_context_or_skip();
  if (!context) return;
  const test::SyntheticModel model("tiny");
  const Checkpoint checkpoint = model.open();
  const test::TempDir folder;
  KernelSource source = test::kernel_source(*context);
  prewarm(*store_in(folder.path(), false), checkpoint.config(), *context, source.device.arch);

  source.kernels = store_in(folder.path(), true);
  auto weights = test::load_weights(*context, checkpoint);
  const auto start = std::chrono::steady_clock::now();
  DeviceEngine engine(std::move(*context), checkpoint.config(), std::move(weights),
                      std::move(source), {.max_context = 16384, .max_sequences = 64});
  const auto tokens = test::some_tokens(checkpoint.config().vocab_size, 400);
  const auto all = std::span(tokens);
  const SequenceId first = engine.create_sequence();
  for (std::size_t i = 0; i < 300; ++i) {
    const SequenceStep step{.sequence = first, .tokens = all.subspan(i, 1)};
    (void)engine.step({&step, 1});
    if (i > 0) continue;
    const std::chrono::duration<double> ready = std::chrono::steady_clock::now() - start;
    fmt::print("ready from a warm cache in {:.2f} s\n", ready.count());
    CHECK(ready.count() < 3);
  }
  CHECK(engine.stats().graph_steps >= 298);
  engine.release(first);
  for (const int batch : {3, 5, 7, 33, 48}) {
    std::vector<SequenceId> ids;
    for (int i = 0; i < batch; ++i)
      ids.push_back(engine.create_sequence());
    for (std::size_t round = 0; round < 6; ++round) {
      std::vector<SequenceStep> steps;
      // The first sequence has a chunk of a prompt in every step.
      for (std::size_t i = 0; i < ids.size(); ++i)
        steps.push_back({.sequence = ids[i], .tokens = all.subspan(round + i, i == 0 ? 6 : 1)});
      (void)engine.step(steps);
      if (round % 2 == 1) (void)engine.step(std::span(steps).subspan(1));
    }
    for (const SequenceId id : ids)
      engine.release(id);
  }
  CHECK(engine.stats().kernels_compiled == 0);

  // A bucket that nobody prewarmed is refused by name, with what to do about it.
  const auto more = test::some_tokens(checkpoint.config().vocab_size, 100, 3);
  const SequenceStep wide{.sequence = engine.create_sequence(), .tokens = more};
  CHECK_THROWS_WITH(engine.step({&wide, 1}), Catch::Contains("is not in the kernel cache") &&
                                                 Catch::Contains("ingot prewarm"));
}
