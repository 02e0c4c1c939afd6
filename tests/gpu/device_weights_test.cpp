#include "src/executor/device_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "src/weights/open_checkpoint.hpp"
#include "tests/support/device_weights_check.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/made_checkpoint.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::filesystem::path config_file(const std::string& name) {
  return test::golden_dir() / "checkpoint" / (name + ".json");
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The most layers of the model, as one of `tp_size` ranks, that leave a tenth of the card free.
executor::WeightOptions fitting(const cu::Context& context, const ModelConfig& config,
                                int tp_size) {
  executor::WeightOptions options{.tp_size = tp_size, .max_layers = config.num_layers};
  while (options.max_layers > 1 &&
         executor::device_weight_bytes(config, options) > context.free_bytes() / 10 * 9)
    --options.max_layers;
  return options;
}

}  // namespace

TEST_CASE("a rank's weights are read back from the card as they were stored",
          "[gpu][weights][alone]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  test::check_device_loading(context, "tiny", 0, 1);
  test::check_device_loading(context, "tiny-tp", 0, 2);
  test::check_device_loading(context, "tiny-tp", 1, 2);
}

TEST_CASE("a loading that fails gives the card's memory back", "[gpu][weights][alone]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  test::check_device_refusals(context);
}

TEST_CASE("synthetic weights fill most of the card within seconds", "[gpu][weights][alone]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const ModelConfig config = value_or_throw(read_model_config(config_file("deepseek-v4-flash")));
  test::check_device_synthetic(context, config, {.max_layers = 2});

  const executor::WeightOptions options = fitting(context, config, 1);
  const auto start = std::chrono::steady_clock::now();
  const auto weights = executor::DeviceWeights::synthetic(context, config, options);
  const double taken_s = seconds_since(start);
  if (!weights) FAIL(weights.error().message);
  fmt::print("weights: {} layers, {:.1f} GB of synthetic weights in {:.2f} s on {}\n",
             options.max_layers, static_cast<double>(weights->bytes()) / 1e9, taken_s,
             context.device().name);
  CHECK(taken_s < 10);
}

// Hidden: it takes the page cache of a quarter of a model. The checkpoint is a hole in a file, so
// the time is that of repacking and copying what already is in memory, or cheaper to make.
TEST_CASE("a rank of four is loaded at 3 GB a second", "[gpu][.speed]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const test::TempDir folder;
  const std::string config = test::read_file(config_file("deepseek-v4-flash"));
  test::write_sparse_checkpoint(folder.path(), config, 46, true);
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(folder.path()));
  const executor::WeightOptions options{
      .tp_size = 4,
      .threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U))};
  if (executor::device_weight_bytes(checkpoint.config(), options) > context.free_bytes() &&
      test::skip("the card is too small for a rank of four"))
    return;
  for (int run = 0; run < 2; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const auto weights = executor::DeviceWeights::load(context, checkpoint, options);
    const double taken_s = seconds_since(start);
    if (!weights) FAIL(weights.error().message);
    const double speed = static_cast<double>(weights->bytes()) / 1e9 / taken_s;
    fmt::print("weights: {:.1f} GB loaded by {} threads in {:.2f} s, {:.2f} GB/s{}\n",
               static_cast<double>(weights->bytes()) / 1e9, options.threads, taken_s, speed,
               run == 0 ? "" : ", from the page cache");
    if (run == 1) CHECK(speed > 3);
  }
}
