#include "kernel_templates/rms_norm.space.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernel_templates/family.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/jit/arch.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using kernels::RmsNorm;

namespace {

constexpr float kEps = 1e-6F;

/// One row by the definition, in double; the caller allows for the kernel's fp32.
std::vector<std::uint16_t> reference_row(std::span<const std::uint16_t> x,
                                         std::span<const std::uint16_t> weight) {
  double squares = 0;
  for (const auto bits : x)
    squares += std::pow(static_cast<double>(test::bf16_value(bits)), 2);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  std::vector<std::uint16_t> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = test::bf16_bits(
        static_cast<float>(test::bf16_value(weight[i]) * (test::bf16_value(x[i]) * scale)));
  }
  return y;
}

constexpr std::uint16_t kPoison = 0xfff1;  // a NaN that no kernel writes

}  // namespace

TEST_CASE("every rms_norm variant agrees with the definition", "[gpu][families]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  int variants = 0;
  int worst = 0;

  for (const auto& sample : RmsNorm::sample_problems()) {
    const auto hidden = static_cast<std::size_t>(sample.hidden);
    constexpr std::size_t kRows = 7;       // fills no group of 2 or 4
    constexpr std::size_t kGuardRows = 4;  // behind the last row: never written
    auto x = test::random_bf16(kRows * hidden, 1);
    for (std::size_t i = 0; i < hidden; ++i)
      x[2 * hidden + i] = 0;     // an empty row gives zeros
    x[3 * hidden + 5] = 0x7fc0;  // a NaN stays in its row
    const auto weight = test::random_bf16(hidden, 2);
    std::vector<std::vector<std::uint16_t>> expected;
    for (std::size_t row = 0; row < kRows; ++row) {
      expected.push_back(reference_row(std::span(x).subspan(row * hidden, hidden), weight));
    }
    const auto x_device = test::to_device(context, stream, x);
    const auto weight_device = test::to_device(context, stream, weight);

    const auto candidates = RmsNorm::space(sample, limits).candidates();
    std::vector<jit::Variant> all;
    for (const auto& params : candidates) {
      all.push_back({std::string(RmsNorm::kStem), jit::param_values(params)});
    }
    const std::vector<jit::Kernel> loaded = test::load_variants(context, all);
    for (std::size_t candidate = 0; candidate < candidates.size(); ++candidate) {
      const auto& params = candidates[candidate];
      const jit::Kernel& kernel = loaded[candidate];
      CAPTURE(jit::describe(all[candidate]));
      const auto y_device = test::to_device(
          context, stream, std::vector<std::uint16_t>((kRows + kGuardRows) * hidden, kPoison));
      const RmsNorm::Args args{.input = x_device.as<kernels::bf16>(),
                               .weight = weight_device.as<kernels::bf16>(),
                               .output = y_device.as<kernels::bf16>(),
                               .rows = static_cast<int>(kRows),
                               .eps = kEps};
      const RmsNorm::Problem problem{.hidden = sample.hidden, .rows = static_cast<int>(kRows)};
      kernel.launch(stream, RmsNorm::launch_shape(problem, params), args);
      const auto y = test::to_host<std::uint16_t>(stream, y_device);
      for (std::size_t row = 0; row < kRows; ++row) {
        for (std::size_t i = 0; i < hidden; ++i) {
          const std::uint16_t got = y[row * hidden + i];
          const int distance = test::bf16_distance(got, expected[row][i]);
          worst = std::max(worst, distance);
          // fp32 sums and a hardware rsqrt can tip a rounding: one unit in the last place.
          if (distance > 1 || got == kPoison) {
            FAIL(fmt::format("row {} element {}: {} instead of {}", row, i, test::bf16_value(got),
                             test::bf16_value(expected[row][i])));
          }
        }
      }
      for (std::size_t i = kRows * hidden; i < y.size(); ++i)
        REQUIRE(y[i] == kPoison);
      ++variants;
    }
  }
  fmt::print("rms_norm: {} variants agree; at most {} unit(s) in the last place of bf16\n",
             variants, worst);
}

TEST_CASE("a kernel found in the cache runs as the one that was compiled", "[gpu][families]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const RmsNorm::Problem problem{.hidden = 1024, .rows = 5};
  const auto params = RmsNorm::space(problem, cu::limits_of(context.device())).default_candidate();
  const jit::KernelRequest request{
      .variant = {std::string(RmsNorm::kStem), jit::param_values(params)},
      .arch = value_or_throw(
          jit::arch_of(context.device().compute_major, context.device().compute_minor)),
      .allow_spills = true};
  const auto files = value_or_throw(jit::find_nvrtc(test::library_directories()));
  const auto pool = std::make_shared<jit::CompilePool>(
      jit::CompilerIdentity{files.version, files.build},
      jit::CompilePool::Options{.worker_command = jit::CompilePool::worker_command(files)});
  const test::TempDir folder;
  jit::KernelStore filler(kernels::embedded_templates(), std::shared_ptr<jit::Compiler>(pool),
                          {.directories = {folder.path()}});
  REQUIRE(filler.get(request));
  jit::KernelStore frozen(kernels::embedded_templates(),
                          fail(ErrorCode::not_found, "no NVRTC on this machine"),
                          {.directories = {folder.path()}, .frozen = true});
  const auto entry = frozen.get(request);
  REQUIRE(entry);
  CHECK(frozen.stats().compiled == 0);

  const jit::Kernel kernel =
      jit::Kernel::load(context, (*entry)->kernel.cubin, request.variant.family);
  const auto x = test::random_bf16(5 * 1024, 5);
  const auto weight = test::random_bf16(1024, 6);
  const auto x_device = test::to_device(context, stream, x);
  const auto weight_device = test::to_device(context, stream, weight);
  const auto y_device =
      test::to_device(context, stream, std::vector<std::uint16_t>(x.size(), kPoison));
  const RmsNorm::Args args{.input = x_device.as<kernels::bf16>(),
                           .weight = weight_device.as<kernels::bf16>(),
                           .output = y_device.as<kernels::bf16>(),
                           .rows = 5,
                           .eps = kEps};
  kernel.launch(stream, RmsNorm::launch_shape(problem, params), args);
  const auto y = test::to_host<std::uint16_t>(stream, y_device);
  for (std::size_t row = 0; row < 5; ++row) {
    const auto expected = reference_row(std::span(x).subspan(row * 1024, 1024), weight);
    for (std::size_t i = 0; i < 1024; ++i) {
      REQUIRE(test::bf16_distance(y[row * 1024 + i], expected[i]) <= 1);
    }
  }
}

TEST_CASE("rms_norm works in place inside a graph of dependent launches",
          "[gpu][families][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const RmsNorm::Problem problem{.hidden = 512, .rows = 33};
  const auto params = RmsNorm::space(problem, cu::limits_of(context.device())).default_candidate();
  const jit::Kernel kernel =
      test::load_variant(context, {std::string(RmsNorm::kStem), jit::param_values(params)});
  const auto x = test::random_bf16(33 * 512, 3);
  const auto weight = test::random_bf16(512, 4);
  const auto buffer = test::to_device(context, stream, x);
  const auto weight_device = test::to_device(context, stream, weight);
  const RmsNorm::Args args{.input = buffer.as<kernels::bf16>(),
                           .weight = weight_device.as<kernels::bf16>(),
                           .output = buffer.as<kernels::bf16>(),
                           .rows = 33,
                           .eps = kEps};
  cu::Capture capture(stream);
  for (int i = 0; i < 3; ++i)
    kernel.launch(stream, RmsNorm::launch_shape(problem, params), args);
  const auto exec = cu::GraphExec::instantiate(capture.finish());
  exec.launch(stream);
  const auto y = test::to_host<std::uint16_t>(stream, buffer);
  for (std::size_t row = 0; row < 33; ++row) {
    std::vector<std::uint16_t> expected(x.begin() + static_cast<std::ptrdiff_t>(row * 512),
                                        x.begin() + static_cast<std::ptrdiff_t>((row + 1) * 512));
    for (int i = 0; i < 3; ++i)
      expected = reference_row(expected, weight);
    for (std::size_t i = 0; i < 512; ++i) {
      // A tipped rounding of one pass is carried into the next.
      REQUIRE(test::bf16_distance(y[row * 512 + i], expected[i]) <= 3);
    }
  }
}
