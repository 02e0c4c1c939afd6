#include <catch2/catch.hpp>

#include "kernel_templates/fp8_linear_wide_sm90.space.hpp"
#include "tests/support/emulator/emulated_target.hpp"
#include "tools/kernel_bench/linear_data.hpp"

using namespace ingot;
using kernels::Fp8LinearProblem;
using Family = kernels::Fp8LinearWideSm90;

namespace {

constexpr std::size_t kGuard = 64;  // elements behind the output that no kernel writes

/// Some tokens hold NaN or infinity, in the first and in the last group.
bench::LinearInput input_for(const Fp8LinearProblem& problem) {
  auto input = bench::random_input(problem.tokens, problem.cols, 11);
  const auto width = static_cast<std::size_t>(problem.cols);
  const auto last = static_cast<std::size_t>(problem.tokens - 1);
  input.x[2 * width + 5] = 0x7fc0;                   // NaN
  input.x[last * width + width - 1] = 0x7f80;        // infinity
  input.x[(last / 2) * width + width - 2] = 0xffc1;  // NaN
  return bench::quantized_input(std::move(input.x), problem.tokens, problem.cols);
}

/// All segments' outputs in one matrix, against the reference; twice.
void check(test::KernelTarget& target, const Fp8LinearProblem& problem,
           const Family::Params& params) {
  const jit::Variant variant = test::variant_of<Family>(params);
  CAPTURE(jit::describe(variant), problem.tokens, problem.rows[0], problem.rows[1]);
  const int rows = problem.strips() * 128;
  const auto weights = bench::random_weights(rows, problem.cols, 3);
  const auto input = input_for(problem);
  const auto expected = bench::reference_linear(weights, input);

  const auto words = static_cast<std::size_t>(Family::workspace_bytes(problem, params) / 4);
  const std::size_t elements = expected.size() + kGuard;
  kernels::Fp8LinearArgs args{};
  args.xq = target.place_as<const kernels::fp8_e4m3>(input.tiles());
  args.x_scale = target.place_as<const float>(input.tile_scales());
  args.workspace = target.place_as<std::uint32_t>(std::vector<std::uint32_t>(words, 0xffffffffU));
  args.tokens = problem.tokens;
  args.x_rows = input.rows;
  const auto* tiles = target.place_as<const kernels::fp8_e4m3>(weights.tiles());
  const auto* scales = target.place_as<const kernels::ue8m0>(weights.scales);
  const auto run = [&] {
    auto* out =
        target.place_as<kernels::bf16>(std::vector<std::uint16_t>(elements, bench::kPoison));
    int row = 0;
    for (std::size_t i = 0; i < problem.rows.size(); ++i) {
      args.segments[i] = {.weight = tiles + static_cast<std::ptrdiff_t>(row) * problem.cols,
                          .scale = scales + row / 128 * problem.k_tiles(),
                          .out = out + row,
                          .rows = problem.rows[i],
                          .out_stride = rows};
      row += problem.rows[i];
    }
    target.run(variant, Family::launch_shape(problem, params, target.limits()), &args);
    return target.fetch_as<std::uint16_t>(out, elements);
  };
  auto got = run();
  CHECK(run() == got);
  for (const auto word : target.fetch_as<std::uint32_t>(args.workspace, words))
    REQUIRE(word == 0xffffffffU);
  for (std::size_t i = expected.size(); i < elements; ++i)
    REQUIRE(got[i] == bench::kPoison);
  got.resize(expected.size());
  const auto comparison = bench::compare(got, expected, rows);
  CAPTURE(comparison.worst, comparison.unwritten, comparison.wrong_kind);
  CHECK(comparison.good());
}

}  // namespace

TEST_CASE("fp8_linear_wide_sm90 agrees with the reference, run thread by thread", "[cpu][kernel]") {
  // More tiles than blocks, pairs of strips that span two weights, a strip without a pair, token
  // tiles without a pair, a last tile with few tokens, rings that turn.
  for (const std::uint64_t seed : {1, 2}) {
    test::EmulatedTarget target(seed, 4);
    check(target, {.rows = {128, 384, 128}, .cols = 640, .tokens = 133},
          {.COLS = 640, .STAGES = 2});
    check(target, {.rows = {384}, .cols = 256, .tokens = 257},
          {.COLS = 256, .STAGES = 3, .MULTICAST = true});
  }
}

TEST_CASE("fp8_linear_wide_sm90 finds the scales of more K tiles than a warp has lanes",
          "[cpu][kernel]") {
  test::EmulatedTarget target(1, 1);
  check(target, {.rows = {256, 128}, .cols = 4224, .tokens = 9}, {.COLS = 4224});
}

TEST_CASE("fp8_linear_wide_sm90 serves where its tiles fill a card", "[cpu][kernel]") {
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const Fp8LinearProblem wq_b{.rows = {32768}, .cols = 1024, .tokens = 256};
  CHECK(Family::is_default(wq_b, limits));
  CHECK(Family::untuned(wq_b).MULTICAST);
  CHECK_FALSE(Family::untuned({.rows = {32768}, .cols = 1024, .tokens = 384}).MULTICAST);
  CHECK(Family::is_default({.rows = {4096}, .cols = 8192, .tokens = 4096}, limits));
  CHECK_FALSE(Family::is_default({.rows = {32768}, .cols = 1024, .tokens = 128}, limits));
  CHECK_FALSE(Family::is_default({.rows = {4096}, .cols = 8192, .tokens = 512}, limits));
  CHECK_FALSE(Family::is_default({.rows = {512}, .cols = 4096, .tokens = 256}, limits));
  for (const Fp8LinearProblem& problem : Family::sample_problems()) {
    const auto candidates = Family::space(problem, limits).candidates();
    REQUIRE_FALSE(candidates.empty());
    CHECK(candidates.front() == Family::untuned(problem));
    for (const auto& params : candidates) {
      const auto shape = Family::launch_shape(problem, params, limits);
      CHECK(shape.grid.x % shape.cluster.x == 0);
      CHECK(static_cast<int>(shape.grid.x) <= limits.sm_count);
    }
  }
}
