#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>

#include "tests/gpu/device_model.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

// Prints where the time of a step goes. INGOT_TEST_BATCH=16: of that batch alone.
void time_most_layers(KernelSource (*source_of)(const cu::Context&)) {
  auto context = test::gpu_context_or_skip();
  if (!context) return;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ModelConfig config = value_or_throw(read_model_config(
      test::golden_dir().parent_path().parent_path() / "configs/deepseek-v4-flash/config.json"));
  config.num_layers = 36;
  config.num_mtp_layers = 0;
  config.draft = DraftKind::none;
  config.compress_ratios.resize(36);
  auto weights = value_or_throw(executor::DeviceWeights::synthetic(*context, config, {}));
  auto source = source_of(*context);
  DeviceEngine engine(
      std::move(*context), config, std::move(weights), std::move(source),
      {.max_context = 8192, .max_sequences = 64, .context_tokens = 64 * 8192, .jobs = 16});
  engine.fill_context();
  std::vector<SequenceId> sequences;
  const char* chosen = std::getenv("INGOT_TEST_BATCH");
  for (const int batch : {1, 16, 64}) {
    if (chosen != nullptr && batch != std::atoi(chosen)) continue;
    while (static_cast<int>(sequences.size()) < batch)
      sequences.push_back(engine.create_filled(2048));
    const DecodeTiming timing = engine.time_decode(sequences, 20);
    const double bytes = static_cast<double>(timing.weight_bytes + timing.context_bytes);
    const double floor_us = bytes / 4.45e6;  // the cold-read rate of large reads on an H200
    fmt::print(
        "batch {}, context 2048, 36 layers: {:.0f} us a step{}, {} launches, {:.1f} tokens/s; "
        "reads "
        "{:.2f} GB, floor {:.0f} us, {:.0f} % of it; {:.1f} experts a layer\n",
        batch, timing.step_us, timing.from_graph ? " from a graph" : "", timing.launches,
        batch * 1e6 / timing.step_us, bytes / 1e9, floor_us, 100 * floor_us / timing.step_us,
        timing.experts_read);
    double sum = 0;
    for (const auto& part : timing.parts)
      sum += part.us;
    for (const auto& part : timing.parts)
      fmt::print("  {:32} {:3} x {:7.2f} us = {:4.1f} %\n", part.name, part.launches,
                 part.us / part.launches, 100 * part.us / sum);
    double path = 0;
    for (const auto& part : timing.path)
      path += part.us;
    if (path > 0) fmt::print("  in the graph: {:.0f} us\n", path);
    for (const auto& part : timing.path)
      fmt::print("    {:32} {:3} x {:7.2f} us = {:4.1f} %\n", part.name, part.launches,
                 part.us / part.launches, 100 * part.us / path);
    CHECK(timing.from_graph);
  }
}

}  // namespace

TEST_CASE("a decode step of most layers of V4-Flash on one GPU", "[gpu][.speed]") {
  time_most_layers(test::kernel_source);
}

TEST_CASE("the critical path of a decode step of most layers of V4-Flash", "[gpu][.speed]") {
  time_most_layers(test::traced_kernel_source);
}

TEST_CASE("a decode step of most layers of V4-Flash with tuned kernels", "[gpu][.speed]") {
  if (std::getenv("INGOT_TEST_CACHE") == nullptr) {
    test::skip("INGOT_TEST_CACHE names no cache folder with tuning records");
    return;
  }
  time_most_layers(test::tuned_kernel_source);
}
