#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <span>

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/fp8_linear.space.hpp"
#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "kernel_templates/fp8_linear_wide_sm90.space.hpp"
#include "runtime/cuda/graph.hpp"
#include "src/reference/numerics.hpp"
#include "tests/support/device_data.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/skip.hpp"
#include "tools/kernel_bench/linear_data.hpp"

using namespace ingot;
using bench::kPoison;
using bench::LinearInput;
using bench::LinearWeights;
using kernels::Fp8LinearProblem;

namespace {

constexpr int kGuard = 64;  // elements behind the output that no kernel writes

/// Inputs in which some tokens hold NaN or infinity, in the first and in the last group.
LinearInput input_with_nan(int tokens, int cols) {
  auto input = bench::random_input(tokens, cols, 11);
  const auto width = static_cast<std::size_t>(cols);
  if (tokens >= 3) input.x[2 * width + 5] = 0x7fc0;          // NaN
  if (tokens >= 9) input.x[8 * width + width - 1] = 0xffc1;  // NaN, last group
  if (tokens >= 13) input.x[12 * width + 200] = 0x7f80;      // infinity
  return bench::quantized_input(std::move(input.x), tokens, cols);
}

/// A linear on the device: weights, inputs, poisoned output, clean workspace.
struct Device {
  const cu::Context& context;
  const cu::Stream& stream;
  Fp8LinearProblem problem;
  cu::DeviceBuffer weights, scales, x, codes, x_scales, out, workspace;
  std::size_t out_elements = 0;

  Device(const cu::Context& on, const cu::Stream& at, const Fp8LinearProblem& wanted,
         const LinearWeights& host_weights, const LinearInput& input)
      : context(on), stream(at), problem(wanted) {
    out_elements = static_cast<std::size_t>(problem.tokens * problem.strips() * 128 + kGuard);
    weights = test::to_device(on, at, host_weights.tiles());
    scales = test::to_device(on, at, host_weights.scales);
    x = test::to_device(on, at, input.x);
    // A token group of 8 that is only partly there is never read whole.
    codes = test::to_device(on, at, input.tiles());
    x_scales = test::to_device(on, at, input.tile_scales());
    out = cu::DeviceBuffer::allocate(on, out_elements * 2);
    workspace = cu::DeviceBuffer::allocate(on, std::size_t{32} << 20);
    workspace.fill_bytes(at, 0xff);
    at.synchronize();
  }

  kernels::Fp8LinearArgs args() const {
    kernels::Fp8LinearArgs args{};
    const int rows = problem.strips() * 128;
    int row = 0;
    std::size_t segments = 0;
    for (const int segment_rows : problem.rows) {
      if (segment_rows == 0) continue;
      auto& segment = args.segments[segments++];
      segment = {.weight = weights.as<kernels::fp8_e4m3>() +
                           static_cast<std::size_t>(row) * static_cast<std::size_t>(problem.cols),
                 .scale = scales.as<kernels::ue8m0>() + row / 128 * problem.k_tiles(),
                 .out = out.as<kernels::bf16>() + row,
                 .rows = segment_rows,
                 .out_stride = rows};
      row += segment_rows;
    }
    args.x = x.as<kernels::bf16>();
    args.xq = codes.as<kernels::fp8_e4m3>();
    args.x_scale = x_scales.as<float>();
    args.workspace = workspace.as<void>();
    args.tokens = problem.tokens;
    args.x_rows = (problem.tokens + 3) / 4 * 4;
    return args;
  }

  std::vector<std::uint16_t> run(const jit::Kernel& kernel, const cu::LaunchShape& shape) const {
    out.fill_bytes(stream, 0xff);
    kernel.launch(stream, shape, args());
    return test::to_host<std::uint16_t>(stream, out);
  }
};

/// Runs variants of one family on one problem and compares each with the reference.
template <class Family>
int check_variants(const cu::Context& context, const cu::Stream& stream,
                   const Fp8LinearProblem& problem,
                   const std::vector<typename Family::Params>& variants, double& worst) {
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  const LinearWeights weights = bench::random_weights(problem.strips() * 128, problem.cols, 3);
  const LinearInput input = input_with_nan(problem.tokens, problem.cols);
  const auto expected = bench::reference_linear(weights, input);
  const Device device(context, stream, problem, weights, input);
  std::vector<jit::Variant> erased;
  for (const auto& params : variants)
    erased.push_back({std::string(Family::kStem), jit::param_values(params)});
  const auto kernels = test::load_variants(context, erased);
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const auto& params = variants[v];
    const jit::Variant& variant = erased[v];
    CAPTURE(jit::describe(variant), problem.tokens, problem.cols, problem.rows[0], problem.rows[1]);
    REQUIRE(Family::workspace_bytes(problem, params) <=
            static_cast<long long>(device.workspace.bytes()));
    const jit::Kernel& kernel = kernels[v];
    const auto shape = Family::launch_shape(problem, params, limits);
    auto got = device.run(kernel, shape);
    for (std::size_t i = expected.size(); i < got.size(); ++i)
      REQUIRE(got[i] == kPoison);
    const auto again = device.run(kernel, shape);
    REQUIRE(got == again);
    got.resize(expected.size());
    const auto comparison = bench::compare(got, expected, problem.strips() * 128);
    CAPTURE(comparison.worst, comparison.unwritten, comparison.wrong_kind,
            comparison.relative_error);
    REQUIRE(comparison.good());
    worst = std::max(worst, comparison.worst);
  }
  return static_cast<int>(variants.size());
}

/// Shapes that fill no tile of tokens, odd numbers of K tiles, several weights, one strip.
const Fp8LinearProblem kProblems[] = {
    {{128}, 128, 1, false},          {{256, 128}, 1024, 1, false},  {{128, 256, 128}, 640, 3, true},
    {{512, 128}, 1152, 13, false},   {{512}, 1152, 13, true},       {{256}, 2048, 16, true},
    {{384}, 1024, 61, false},        {{256, 256}, 896, 130, false}, {{1024}, 1024, 250, false},
    {{1024, 512}, 4096, 256, false}, {{2048}, 512, 256, false},
};

/// The same of many tokens: token tiles and strips without a pair, pairs of strips of two weights.
const Fp8LinearProblem kWideProblems[] = {
    {{384}, 640, 257, false},
    {{256, 256}, 896, 130, false},
    {{128, 256, 128}, 1024, 1000, false},
    {{1024, 512}, 4096, 256, false},
    {{4096}, 1024, 512, false},
    {{640}, 512, 4096, false},
};

template <class Family>
void check_family(std::span<const Fp8LinearProblem> problems, std::size_t most_variants) {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  if (!Family::runs_on(limits) && test::skip(std::string(Family::kStem) + " needs another card"))
    return;
  int variants = 0;
  double worst = 0;
  for (const auto& problem : problems) {
    auto chosen = Family::space(problem, limits).extremes();
    if (chosen.size() > most_variants) chosen.resize(most_variants);
    variants += check_variants<Family>(context, stream, problem, chosen, worst);
  }
  fmt::print("{}: {} variants agree; worst element at {:.2f} of what is allowed\n", Family::kStem,
             variants, worst);
}

/// One variant of a family on one problem.
template <class Family>
struct Case {
  Fp8LinearProblem problem;
  typename Family::Params params;
};
const Case<kernels::Fp8LinearSm90> kSplitCases[] = {
    {{{256}, 1024, 5, false}, {.COLS = 1024, .TOKENS = 8, .STAGES = 2, .SPLIT_K = 4}},
    {{{256}, 2048, 5, true},
     {.COLS = 2048, .TOKENS = 8, .STAGES = 3, .SPLIT_K = 16, .X_RESIDENT = true, .QUANTIZE = true}},
    {{{256}, 1024, 20, false},
     {.COLS = 1024, .TOKENS = 32, .STAGES = 3, .SPLIT_K = 3, .CLUSTERED = true}},
    {{{256}, 1152, 256, false},
     {.COLS = 1152, .TOKENS = 128, .STAGES = 4, .SPLIT_K = 2, .CLUSTERED = true}},
    {{{512}, 1152, 256, false},
     {.COLS = 1152, .TOKENS = 64, .STAGES = 4, .SPLIT_K = 3, .MULTICAST = true}},
    {{{512}, 512, 250, false},
     {.COLS = 512, .TOKENS = 128, .STAGES = 3, .MULTICAST = true, .X_RESIDENT = true}},
};
const Case<kernels::Fp8LinearWideSm90> kWideCases[] = {
    {{{512}, 1152, 250, false}, {.COLS = 1152}},
    {{{4096}, 512, 1000, false}, {.COLS = 512, .MULTICAST = true}},
};

/// Launches in a dependent graph give the bits of a single one, and leave the workspace clean.
template <class Family>
void check_repeats(const cu::Context& context, const cu::Stream& stream,
                   std::span<const Case<Family>> cases) {
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  for (const auto& c : cases) {
    const jit::Variant variant{std::string(Family::kStem), jit::param_values(c.params)};
    CAPTURE(jit::describe(variant));
    const LinearWeights weights =
        bench::random_weights(c.problem.strips() * 128, c.problem.cols, 5);
    const LinearInput input = bench::random_input(c.problem.tokens, c.problem.cols, 6);
    const auto expected = bench::reference_linear(weights, input);
    const Device device(context, stream, c.problem, weights, input);
    const jit::Kernel kernel = test::load_variant(context, variant);
    const auto shape = Family::launch_shape(c.problem, c.params, limits);
    auto first = device.run(kernel, shape);
    cu::Capture capture(stream);
    for (int i = 0; i < 8; ++i)
      kernel.launch(stream, shape, device.args());
    const auto exec = cu::GraphExec::instantiate(capture.finish());
    device.out.fill_bytes(stream, 0xff);
    exec.launch(stream);
    CHECK(test::to_host<std::uint16_t>(stream, device.out) == first);
    first.resize(expected.size());
    CHECK(bench::compare(first, expected, c.problem.strips() * 128).good());
    // Whoever read a word of the workspace has put it back.
    const auto words = test::to_host<std::uint32_t>(stream, device.workspace);
    CHECK(std::count(words.begin(), words.end(), 0xffffffffU) ==
          static_cast<std::ptrdiff_t>(words.size()));
  }
}

}  // namespace

TEST_CASE("fp8_linear agrees with the reference", "[gpu][families]") {
  check_family<kernels::Fp8Linear>(kProblems, 8);
}

TEST_CASE("fp8_linear_sm90 agrees with the reference", "[gpu][families]") {
  check_family<kernels::Fp8LinearSm90>(kProblems, 8);
}

TEST_CASE("fp8_linear_wide_sm90 agrees with the reference", "[gpu][families]") {
  check_family<kernels::Fp8LinearWideSm90>(kWideProblems, 12);
}

TEST_CASE("FP8 linears of split and of clustered blocks repeat to the bit in a dependent graph",
          "[gpu][families][sanitize]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  if (!kernels::Fp8LinearSm90::runs_on(limits) && test::skip("needs a Hopper card")) return;
  check_repeats<kernels::Fp8LinearSm90>(context, stream, kSplitCases);
  check_repeats<kernels::Fp8LinearWideSm90>(context, stream, kWideCases);
}

TEST_CASE("act_quant writes what the reference writes, to the bit", "[gpu][families]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  const cu::Context context = cu::Context::retain(driver, 0);
  const cu::Stream stream = cu::Stream::create(context);
  const cu::DeviceLimits limits = cu::limits_of(context.device());
  int variants = 0;
  for (const bool tiled : {true, false}) {
    for (const int tokens : {1, 13}) {
      const kernels::ActQuant::Problem problem{.tokens = tokens, .cols = 640, .tiled = tiled};
      const LinearInput input = input_with_nan(tokens, problem.cols);
      const auto x = test::to_device(context, stream, input.x);
      const auto tiles = input.tiles();
      const auto tile_scales = input.tile_scales();
      const int scale_stride = kernels::act_quant_scale_stride(problem.cols);
      const auto all = kernels::ActQuant::space(problem, limits).candidates();
      std::vector<jit::Variant> erased;
      for (const auto& params : all)
        erased.push_back({std::string(kernels::ActQuant::kStem), jit::param_values(params)});
      const auto loaded = test::load_variants(context, erased);
      for (std::size_t v = 0; v < all.size(); ++v) {
        const auto& params = all[v];
        const jit::Variant& variant = erased[v];
        CAPTURE(jit::describe(variant), tokens);
        const auto codes = cu::DeviceBuffer::allocate(context, tiles.size() + kGuard);
        const auto scales = cu::DeviceBuffer::allocate(
            context,
            std::max(tile_scales.size(), static_cast<std::size_t>(tokens * scale_stride)) * 4 +
                kGuard);
        codes.fill_bytes(stream, 0xee);
        scales.fill_bytes(stream, 0xee);
        const kernels::ActQuantArgs args{.x = x.as<kernels::bf16>(),
                                         .codes = codes.as<kernels::fp8_e4m3>(),
                                         .scale = scales.as<float>(),
                                         .tokens = tokens,
                                         .cols = problem.cols,
                                         .x_stride = problem.cols,
                                         .rows = input.rows};
        loaded[v].launch(stream, kernels::ActQuant::launch_shape(problem, params), args);
        const auto got = test::to_host<std::uint8_t>(stream, codes);
        const auto got_scales = test::to_host<float>(stream, scales);
        for (int token = 0; token < tokens; ++token) {
          for (int k = 0; k < problem.cols / 128; ++k) {
            const auto group = static_cast<std::size_t>(token * (problem.cols / 128) + k);
            const auto line = static_cast<std::size_t>(k * input.rows + token);
            const std::uint8_t* wanted =
                tiled ? reinterpret_cast<const std::uint8_t*>(&tiles[line * 128])
                      : &input.codes[group * 128];
            bool has_nan = false;
            for (std::size_t i = 0; i < 128; ++i)
              has_nan = has_nan || (wanted[i] & 0x7f) == 0x7f;
            const auto row_scale = static_cast<std::size_t>(token * scale_stride + k);
            const float scale = got_scales[tiled ? line : row_scale];
            CAPTURE(token, k);
            const std::uint8_t* const codes_of_group = &got[(tiled ? line : group) * 128];
            if (has_nan) {  // the scale says it all; codes only keep the NaN
              REQUIRE(scale != scale);
              for (std::size_t i = 0; i < 128; ++i)
                REQUIRE(((wanted[i] & 0x7f) != 0x7f || (codes_of_group[i] & 0x7f) == 0x7f));
              continue;
            }
            REQUIRE(scale == input.scales[group]);
            for (std::size_t i = 0; i < 128; ++i)
              REQUIRE(codes_of_group[i] == wanted[i]);
          }
        }
        for (std::size_t i = tiles.size(); i < got.size(); ++i)
          REQUIRE(got[i] == 0xee);
        ++variants;
      }
    }
  }
  fmt::print("act_quant: {} variants equal the reference\n", variants);
}
