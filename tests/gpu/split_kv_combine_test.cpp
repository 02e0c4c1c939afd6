#include "kernel_templates/split_kv_combine.space.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "src/reference/numerics.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"

using namespace ingot;
using kernels::SplitKvCombine;

namespace {

constexpr std::size_t kDims = kernels::COMBINE_DIMS;
constexpr std::size_t kPlain = kDims - kernels::COMBINE_ROPE_DIMS;
constexpr float kEmpty = -std::numeric_limits<float>::infinity();
constexpr std::uint16_t kPoison = 0xfff1;

struct Inputs {
  std::size_t batch, heads, nsplit;
  std::vector<float> partial;          // [batch, nsplit, heads, 512]
  std::vector<std::uint16_t> rounded;  // the same in bf16
  std::vector<float> lse;              // [batch, nsplit, heads]
  std::vector<float> sink;             // [heads]
  std::vector<int> positions;
  std::vector<float> frequencies;

  std::size_t row(std::size_t b, std::size_t s, std::size_t h) const {
    return (b * nsplit + s) * heads + h;
  }
};

/// Some splits empty (their values are NaN: nobody may read them), one row all empty, one NaN, and
/// sinks from none to far above every score.
Inputs made_inputs(std::size_t batch, std::size_t heads, std::size_t nsplit) {
  Inputs in{.batch = batch,
            .heads = heads,
            .nsplit = nsplit,
            .partial = {},
            .rounded = {},
            .lse = {},
            .sink = {},
            .positions = {},
            .frequencies = {}};
  const auto values = test::random_bf16(batch * nsplit * heads * kDims, 31);
  std::mt19937 random(37);
  std::uniform_real_distribution<float> score(-20.0F, 20.0F);
  for (std::size_t row = 0; row < batch * nsplit * heads; ++row)
    in.lse.push_back(random() % 4 == 0 ? kEmpty : score(random));
  for (std::size_t s = 0; s < nsplit; ++s)
    in.lse[in.row(batch - 1, s, 1)] = kEmpty;
  in.lse[in.row(0, nsplit - 1, 2)] = 3.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = test::bf16_value(values[i]);
    if (in.lse[i / kDims] == kEmpty) value = std::numeric_limits<float>::quiet_NaN();
    if (i == in.row(0, nsplit - 1, 2) * kDims + 9) value = std::numeric_limits<float>::quiet_NaN();
    in.partial.push_back(value * 1.25F);
    in.rounded.push_back(test::bf16_bits(value * 1.25F));
  }
  for (std::size_t h = 0; h < heads; ++h)
    in.sink.push_back(h == 0 ? kEmpty : h == 3 ? 300.0F : score(random));
  for (std::size_t b = 0; b < batch; ++b)
    in.positions.push_back(static_cast<int>(b * 349'525));
  for (int i = 0; i < 32; ++i)
    in.frequencies.push_back(1.0F / std::pow(10000.0F, static_cast<float>(i) / 32));
  return in;
}

/// One row by the definition, in double, before any rounding of the rope.
std::vector<double> reference_row(const Inputs& in, const SplitKvCombine::Problem& problem,
                                  std::size_t b, std::size_t h) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::size_t s = 0; s < in.nsplit; ++s)
    largest = std::max(largest, static_cast<double>(in.lse[in.row(b, s, h)]));
  std::vector<double> sum(kDims, 0.0);
  if (std::isinf(largest)) return sum;
  double total = 0;
  for (std::size_t s = 0; s < in.nsplit; ++s) {
    const float lse = in.lse[in.row(b, s, h)];
    if (lse == kEmpty) continue;
    const double weight = std::exp(static_cast<double>(lse) - largest);
    total += weight;
    for (std::size_t d = 0; d < kDims; ++d) {
      const std::size_t at = in.row(b, s, h) * kDims + d;
      sum[d] += weight * static_cast<double>(problem.partial_bf16 ? test::bf16_value(in.rounded[at])
                                                                  : in.partial[at]);
    }
  }
  if (problem.has_sink) total += std::exp(static_cast<double>(in.sink[h]) - largest);
  for (double& value : sum)
    value /= total;
  return sum;
}

}  // namespace

TEST_CASE("every split_kv_combine variant agrees with the definition",
          "[gpu][families][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  int variants = 0;
  double worst = 0;
  for (auto problem : SplitKvCombine::sample_problems()) {
    problem.batch = 3;
    problem.heads = 8;
    const Inputs in = made_inputs(3, 8, static_cast<std::size_t>(problem.nsplit));
    const auto partial = problem.partial_bf16 ? test::to_device(context, stream, in.rounded)
                                              : test::to_device(context, stream, in.partial);
    const auto lse = test::to_device(context, stream, in.lse);
    const auto sink = test::to_device(context, stream, in.sink);
    const auto positions = test::to_device(context, stream, in.positions);
    const auto frequencies = test::to_device(context, stream, in.frequencies);
    const auto all = SplitKvCombine::space(problem, limits).candidates();
    std::vector<jit::Variant> erased;
    for (const auto& params : all)
      erased.push_back({std::string(SplitKvCombine::kStem), jit::param_values(params)});
    const auto loaded = test::load_variants(context, erased);
    for (std::size_t v = 0; v < all.size(); ++v) {
      const auto& params = all[v];
      const jit::Kernel& kernel = loaded[v];
      CAPTURE(jit::describe(erased[v]));
      const auto out =
          test::to_device(context, stream, std::vector<std::uint16_t>(3 * 8 * kDims + 64, kPoison));
      const kernels::SplitKvCombineArgs args{.partial = partial.as<void>(),
                                             .lse = lse.as<float>(),
                                             .sink = sink.as<float>(),
                                             .positions = positions.as<int>(),
                                             .frequencies = frequencies.as<float>(),
                                             .out = out.as<kernels::bf16>(),
                                             .batch = 3,
                                             .heads = 8};
      const auto shape = SplitKvCombine::launch_shape(problem, params);
      kernel.launch(stream, shape, args);
      const auto got = test::to_host<std::uint16_t>(stream, out);
      kernel.launch(stream, shape, args);
      REQUIRE(test::to_host<std::uint16_t>(stream, out) == got);
      for (std::size_t b = 0; b < 3; ++b) {
        for (std::size_t h = 0; h < 8; ++h) {
          const auto expected = reference_row(in, problem, b, h);
          for (std::size_t d = 0; d < kDims; ++d) {
            const std::uint16_t bits = got[(b * 8 + h) * kDims + d];
            const double value = test::bf16_value(bits);
            double wanted = expected[d];
            double allowed = 0x1p-8 * std::abs(wanted) + 1e-6;
            if (problem.inverse_rope && d >= kPlain) {
              const std::size_t pair = (d - kPlain) / 2;
              const float angle = static_cast<float>(in.positions[b]) * in.frequencies[pair];
              const double cosine = std::cos(static_cast<double>(angle));
              const double sine = std::sin(static_cast<double>(angle));
              const double first = expected[d / 2 * 2];
              const double second = expected[d / 2 * 2 + 1];
              wanted = d % 2 == 0 ? first * cosine + second * sine : second * cosine - first * sine;
              // Rounded to bf16 before the turn and after it.
              allowed = 0x1p-7 * (std::abs(first) + std::abs(second)) + 1e-6;
            }
            CAPTURE(b, h, d, value, wanted);
            REQUIRE(bits != kPoison);
            if (wanted != wanted) {
              REQUIRE(value != value);
              continue;
            }
            REQUIRE(std::abs(value - wanted) <= allowed);
            worst = std::max(worst, std::abs(value - wanted) / allowed);
          }
        }
      }
      for (std::size_t i = 3 * 8 * kDims; i < got.size(); ++i)
        REQUIRE(got[i] == kPoison);
      ++variants;
    }
  }
  fmt::print("split_kv_combine: {} variants agree; worst element at {:.2f} of what is allowed\n",
             variants, worst);
}
