#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <span>

#include "kernel_templates/moe_decode.space.hpp"
#include "runtime/cuda/graph.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/moe_experts.hpp"
#include "tests/support/notes.hpp"
#include "tests/support/skip.hpp"

using namespace ingot;
using kernels::MoeDecode;
using kernels::MoeDecodeProblem;
using test::MoeExperts;
using test::MoeRouting;

namespace {

constexpr double kTolerance = 2e-3, kRowTolerance = 4e-3;  // relative
constexpr std::size_t kGuard = 64;  // elements behind the output that no kernel writes

/// Experts on the device; a batch of inputs; workspaces that are poisoned before each launch.
struct Device {
  const cu::Context& context;
  const cu::Stream& stream;
  cu::DeviceBuffer gate_up, down, x, x_scale, ids, weights, sums, activations, out, counters;
  test::MoeShape shape;

  Device(const cu::Context& on, const cu::Stream& at, const MoeExperts& experts)
      : context(on), stream(at), shape(experts.shape) {
    gate_up = test::to_device(on, at, experts.gate_up_jobs());
    down = test::to_device(on, at, experts.down_jobs());
    counters = cu::DeviceBuffer::allocate(on, kernels::MOE_COUNTER_WORDS * 4);
    counters.fill_bytes(at, 0);
  }

  void take_batch(const MoeExperts& experts) {
    shape = experts.shape;
    const MoeDecodeProblem problem{
        .batch = shape.tokens, .inter = shape.inter, .hidden = shape.hidden, .topk = shape.topk};
    x = test::to_device(context, stream, experts.codes);
    x_scale = test::to_device(context, stream, experts.scales);
    ids = test::to_device(context, stream, experts.ids);
    weights = test::to_device(context, stream, experts.weights);
    sums = cu::DeviceBuffer::allocate(context,
                                      static_cast<std::size_t>(MoeDecode::sum_bytes(problem)));
    activations = cu::DeviceBuffer::allocate(
        context, static_cast<std::size_t>(MoeDecode::activation_bytes(problem)));
    out = cu::DeviceBuffer::allocate(context, (experts.x.size() + kGuard) * 4);
  }

  kernels::MoeDecodeArgs args() const {
    return {.x = x.as<kernels::fp8_e4m3>(),
            .x_scale = x_scale.as<float>(),
            .experts = ids.as<int>(),
            .weights = weights.as<float>(),
            .gate_up = gate_up.as<kernels::u8>(),
            .down = down.as<kernels::u8>(),
            .sums = sums.as<float>(),
            .activations = activations.as<kernels::u8>(),
            .out = out.as<float>(),
            .counters = counters.as<kernels::u32>(),
            .limit = 10.0F,
            .tokens = shape.tokens};
  }

  void poison() const {
    for (const auto* buffer : {&sums, &activations, &out})
      buffer->fill_bytes(stream, 0xff);
  }
  std::vector<float> run(const jit::Kernel& kernel, const cu::LaunchShape& launch) const {
    poison();
    kernel.launch(stream, launch, args());
    return test::to_host<float>(stream, out);
  }
};

struct Batch {
  int tokens;
  MoeRouting routing;
  bool nan = false;
};

struct Case {
  test::MoeShape shape;
  bool whole_experts;
  int scale_spread;
  std::size_t most_variants;  // of a batch
};

/// Runs variants of each batch's bucket and compares them with the reference.
void check_batches(const Case& c, std::span<const Batch> batches) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  std::vector<std::vector<MoeDecode::Params>> chosen;
  std::vector<jit::Variant> erased;
  for (const Batch& batch : batches) {
    // A bucket that the tokens do not fill.
    const int bucket = batch.tokens <= 4 ? batch.tokens : (batch.tokens + 15) / 16 * 16;
    const MoeDecodeProblem problem{.batch = bucket,
                                   .inter = c.shape.inter,
                                   .hidden = c.shape.hidden,
                                   .experts = c.shape.experts,
                                   .topk = c.shape.topk,
                                   .whole_experts = c.whole_experts};
    auto variants = MoeDecode::space(problem, limits).extremes();
    if (variants.size() > c.most_variants) variants.resize(c.most_variants);
    for (const auto& params : variants)
      erased.push_back({std::string(MoeDecode::kStem), jit::param_values(params)});
    chosen.push_back(std::move(variants));
  }
  test::note(0, "compiling");
  const auto kernels = test::load_variants(context, erased);
  std::optional<Device> device;
  std::size_t next = 0;
  double worst = 0;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    test::note(0, "making a batch and its reference");
    test::MoeShape shape = c.shape;
    shape.tokens = batches[b].tokens;
    MoeExperts experts = test::random_moe(shape, batches[b].routing, c.scale_spread, 7);
    if (batches[b].nan) test::poison(experts, shape.tokens / 2, 130);
    if (!device) device.emplace(context, stream, experts);  // all batches have the same weights
    device->take_batch(experts);
    const auto expected = experts.reference(c.whole_experts);
    for (const auto& params : chosen[b]) {
      CAPTURE(jit::describe(erased[next]), shape.tokens, static_cast<int>(batches[b].routing));
      test::note(0, "launching");
      const jit::Kernel& kernel = kernels[next++];
      const auto launch = MoeDecode::launch_shape({}, params, limits);
      auto got = device->run(kernel, launch);
      for (int again = 0; again < 2; ++again) {
        const auto repeated = device->run(kernel, launch);
        REQUIRE(std::memcmp(repeated.data(), got.data(), got.size() * 4) == 0);
      }
      REQUIRE(std::all_of(got.begin() + static_cast<std::ptrdiff_t>(expected.size()), got.end(),
                          [](float x) { return std::bit_cast<std::uint32_t>(x) == 0xffffffffU; }));
      got.resize(expected.size());
      const auto difference = test::compare_moe(got, expected, shape.hidden);
      CAPTURE(difference.relative, difference.worst_row);
      REQUIRE_FALSE(difference.nan_differs);
      REQUIRE(difference.relative <= kTolerance);
      REQUIRE(difference.worst_row <= kRowTolerance);
      worst = std::max(worst, difference.relative);
    }
  }
  fmt::print(
      "moe_decode, intermediate {}, hidden {}: {} variants agree; worst relative error {:.1e}\n",
      c.shape.inter, c.shape.hidden, erased.size(), worst);
}

constexpr Batch kFewTokens[] = {{1, MoeRouting::uniform},
                                {4, MoeRouting::uniform},
                                {5, MoeRouting::leave_out},
                                {17, MoeRouting::uniform, true}};
constexpr Batch kManyTokens[] = {{64, MoeRouting::same}, {77, MoeRouting::first_full, true}};

}  // namespace

TEST_CASE("moe_decode agrees with the reference at few tokens, a share of the experts",
          "[gpu][families]") {
  check_batches({{.hidden = 4096, .inter = 256, .experts = 32}, false, 5, 4}, kFewTokens);
}
TEST_CASE("moe_decode agrees with the reference at few tokens, whole experts", "[gpu][families]") {
  check_batches({{.hidden = 1024, .inter = 2048, .experts = 32}, true, 5, 4}, kFewTokens);
}
TEST_CASE("moe_decode agrees with the reference at many tokens, a share of the experts",
          "[gpu][families]") {
  check_batches({{.hidden = 2048, .inter = 256, .experts = 64}, false, 5, 4}, kManyTokens);
}
TEST_CASE("moe_decode agrees with the reference at many tokens, whole experts", "[gpu][families]") {
  check_batches({{.hidden = 1024, .inter = 2048, .experts = 32}, true, 5, 4}, kManyTokens);
}
TEST_CASE("moe_decode agrees with the reference at 256 tokens", "[gpu][families]") {
  constexpr Batch kBatch[] = {{256, MoeRouting::uniform}};
  check_batches({{.hidden = 1024, .inter = 256, .experts = 256}, false, 5, 6}, kBatch);
}
TEST_CASE("moe_decode agrees with the reference where scales lie 2^20 apart", "[gpu][families]") {
  constexpr Batch kBatches[] = {{1, MoeRouting::uniform}, {17, MoeRouting::same, true}};
  for (const int inter : {512, 1024})
    check_batches({{.hidden = 1024, .inter = inter, .experts = 32}, false, 21, 3}, kBatches);
}

TEST_CASE("moe_decode runs clean, a launch each at few tokens and at many",
          "[gpu][families][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  std::vector<MoeDecode::Params> chosen;
  std::vector<jit::Variant> erased;
  for (const int tokens : {1, 16}) {
    chosen.push_back(MoeDecode::default_params(
        {.batch = tokens, .inter = 256, .hidden = 1024, .experts = 32, .whole_experts = false},
        limits));
    erased.push_back({std::string(MoeDecode::kStem), jit::param_values(chosen.back())});
  }
  const auto kernels = test::load_variants(context, erased);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    CAPTURE(jit::describe(erased[i]));
    const MoeExperts experts = test::random_moe(
        {.hidden = 1024, .inter = 256, .experts = 32, .tokens = chosen[i].BATCH / 2 + 1},
        MoeRouting::same, 5, 3);
    Device device(context, stream, experts);
    device.take_batch(experts);
    auto launch = MoeDecode::launch_shape({}, chosen[i], limits);
    launch.grid.x = 6;  // fewer blocks than output strips: an instrumented block is slow
    launch.programmatic = false;
    auto got = device.run(kernels[i], launch);
    const auto expected = experts.reference(false);
    got.resize(expected.size());
    const auto difference = test::compare_moe(got, expected, experts.shape.hidden);
    CHECK_FALSE(difference.nan_differs);
    CHECK(difference.relative <= kTolerance);
  }
}

TEST_CASE("moe_decode repeats to the bit in a graph of dependent launches", "[gpu][families]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  for (const int tokens : {2, 20}) {
    const MoeExperts experts = test::random_moe(
        {.hidden = 1024, .inter = 256, .experts = 32, .tokens = tokens}, MoeRouting::uniform, 5, 3);
    const MoeDecodeProblem problem{.batch = tokens,
                                   .inter = 256,
                                   .hidden = 1024,
                                   .experts = 32,
                                   .whole_experts = false,
                                   .batch_free = tokens > 4};
    const auto params = MoeDecode::default_params(problem, limits);
    const jit::Variant variant{std::string(MoeDecode::kStem), jit::param_values(params)};
    CAPTURE(jit::describe(variant));
    const jit::Kernel kernel = test::load_variant(context, variant);
    const auto launch = MoeDecode::launch_shape(problem, params, limits);
    Device device(context, stream, experts);
    device.take_batch(experts);
    const auto first = device.run(kernel, launch);
    cu::Capture capture(stream);
    for (int i = 0; i < 20; ++i)
      kernel.launch(stream, launch, device.args());
    const auto exec = cu::GraphExec::instantiate(capture.finish());
    device.poison();
    exec.launch(stream);
    const auto got = test::to_host<float>(stream, device.out);
    CHECK(std::memcmp(got.data(), first.data(), first.size() * 4) == 0);
    auto values = first;
    const auto expected = experts.reference(false);
    values.resize(expected.size());
    const auto difference = test::compare_moe(values, expected, experts.shape.hidden);
    CHECK_FALSE(difference.nan_differs);
    CHECK(difference.relative <= kTolerance);
  }
}
