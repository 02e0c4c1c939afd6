#include <catch2/catch.hpp>
#include <stdexcept>

#include "runtime/cuda/stream.hpp"
#include "src/weights/open_checkpoint.hpp"
#include "tests/support/device_weights_check.hpp"
#include "tests/support/weight_models.hpp"

namespace ingot::test {
namespace {

std::vector<std::byte> download(const cu::Stream& stream, const void* address, std::size_t bytes) {
  std::vector<std::byte> host(bytes);
  const cu::DriverApi& driver = stream.driver();
  driver.check(driver.cuMemcpyDtoHAsync_v2(host.data(), reinterpret_cast<cu::CUdeviceptr>(address),
                                           bytes, stream.raw()),
               "cuMemcpyDtoHAsync");
  stream.synchronize();
  return host;
}

/// Fails unless what `work` took of the card's memory comes back. The driver may keep some MiB of
/// its own when work of a kind runs first, so the work runs once before memory is looked at.
template <class Work>
void check_frees_memory(const cu::Context& context, std::uint64_t bytes, const Work& work) {
  work();
  const std::uint64_t before = context.free_bytes();
  for (int run = 0; run < 3; ++run)
    work();
  CHECK(context.free_bytes() + bytes / 2 > before);
}

}  // namespace

executor::WeightViews views_of(const executor::DeviceWeights& weights) {
  executor::WeightViews views;
  views.embedding = weights.embedding();
  views.head = weights.head();
  views.first_token = weights.first_token();
  views.norm = weights.norm();
  views.hc_head = weights.hc_head();
  views.layers = weights.layers();
  if (weights.draft() != nullptr) views.draft = *weights.draft();
  views.plain_frequencies = weights.plain_frequencies();
  views.compress_frequencies = weights.compress_frequencies();
  return views;
}

void check_device_loading(const cu::Context& context, const std::string& model, int tp_rank,
                          int tp_size) {
  const Checkpoint checkpoint = value_or_throw(open_checkpoint(weight_model(model)));
  const executor::WeightOptions options{.tp_rank = tp_rank, .tp_size = tp_size, .threads = 3};
  const std::uint64_t bytes = executor::device_weight_bytes(checkpoint.config(), options);
  check_frees_memory(context, bytes, [&] {
    const cu::Stream stream = cu::Stream::create(context);
    std::uint64_t done = 0, all = 1;
    const auto weights = executor::DeviceWeights::load(context, checkpoint, options,
                                                       [&](std::uint64_t now, std::uint64_t total) {
                                                         done = now;
                                                         all = total;
                                                       });
    if (!weights) FAIL(weights.error().message);
    CHECK(done == all);
    CHECK(weights->bytes() == bytes);
    check_weights(
        checkpoint, views_of(*weights), tp_rank, tp_size,
        [&](const void* address, std::size_t count) { return download(stream, address, count); });
  });
}

void check_device_refusals(const cu::Context& context) {
  constexpr std::uint64_t kTinyBytes = 16 << 20;
  const DamagedModel damaged({{"layers.2.ffn.experts.5.w3.scale", 7, "\xff"}});
  const Checkpoint bad = value_or_throw(open_checkpoint(damaged.path()));
  check_frees_memory(context, kTinyBytes, [&] {
    const auto weights = executor::DeviceWeights::load(context, bad, {});
    REQUIRE_FALSE(weights);
    CHECK(weights.error().code == ErrorCode::corrupt);
    CHECK_THAT(weights.error().message,
               Catch::Contains("layers.2.ffn.experts.5.w3.scale") && Catch::Contains("255 (NaN)"));
  });

  const Checkpoint good = value_or_throw(open_checkpoint(weight_model("tiny")));
  check_frees_memory(context, kTinyBytes, [&] {
    const auto stop = [](std::uint64_t, std::uint64_t) { throw std::range_error("interrupted"); };
    CHECK_THROWS_AS(executor::DeviceWeights::load(context, good, {}, stop), std::range_error);
    const auto stop_engine = [](std::uint64_t, std::uint64_t) {
      throw EngineError(ErrorCode::io, "interrupted");
    };
    CHECK_THROWS_AS(executor::DeviceWeights::load(context, good, {}, stop_engine), EngineError);
  });

  for (const executor::WeightOptions& options :
       {executor::WeightOptions{.tp_rank = 0, .tp_size = 3},
        executor::WeightOptions{.tp_rank = 1, .tp_size = 1}, executor::WeightOptions{.threads = 0},
        executor::WeightOptions{.max_layers = 2}}) {
    const auto weights = executor::DeviceWeights::load(context, good, options);
    REQUIRE_FALSE(weights);
    CHECK(weights.error().code == ErrorCode::invalid_argument);
  }
}

void check_device_synthetic(const cu::Context& context, const ModelConfig& config,
                            const executor::WeightOptions& options) {
  const std::uint64_t bytes = executor::device_weight_bytes(config, options);
  check_frees_memory(context, bytes, [&] {
    const cu::Stream stream = cu::Stream::create(context);
    const auto weights = executor::DeviceWeights::synthetic(context, config, options);
    if (!weights) FAIL(weights.error().message);
    CHECK(weights->bytes() == bytes);
    const executor::Layer& last = weights->layers().back();
    const auto job = download(stream, last.experts.down, 2176);
    CHECK(job == download(stream, weights->layers().front().experts.down, 2176));
    CHECK(job != std::vector<std::byte>(2176, job[0]));
    for (const std::byte scale :
         download(stream, last.wo_b.scales,
                  static_cast<std::size_t>(last.wo_b.rows / 128 * last.wo_b.cols / 128))) {
      CHECK(std::to_integer<int>(scale) > 100);
      CHECK(std::to_integer<int>(scale) < 127);
    }
  });
}

}  // namespace ingot::test
