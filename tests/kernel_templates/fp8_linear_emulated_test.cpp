#include <catch2/catch.hpp>

#include "kernel_templates/fp8_linear_sm90.space.hpp"
#include "tests/support/emulator/fp8_linear_variants.hpp"
#include "tools/kernel_bench/linear_data.hpp"

using namespace ingot;
using test::emulator::Fp8LinearInputs;
using test::emulator::Fp8LinearVariant;

namespace {

constexpr int kRows = 384;

/// A batch that fills no token tile, in which some tokens hold NaN or infinity.
bench::LinearInput input_for(const Fp8LinearVariant& variant) {
  const int tiles = variant.paired ? 2 : 1;
  const int tokens = tiles * variant.tile_tokens - 3;
  auto input = bench::random_input(tokens, variant.cols, 11);
  const auto width = static_cast<std::size_t>(variant.cols);
  input.x[2 * width + 5] = 0x7fc0;                                             // NaN
  input.x[static_cast<std::size_t>(tokens - 1) * width + width - 1] = 0x7f80;  // infinity
  return bench::quantized_input(std::move(input.x), tokens, variant.cols);
}

Fp8LinearInputs launch_for(const Fp8LinearVariant& variant, const bench::LinearWeights& weights,
                           const bench::LinearInput& input) {
  return {.rows = weights.rows,
          .tokens = input.tokens,
          .x_rows = input.rows,
          .strip_blocks = variant.one_strip ? weights.rows / 128 : 2,
          .weight = weights.tiles(),
          .x = input.tiles(),
          .weight_scale = weights.scales,
          .x_scale = input.tile_scales()};
}

}  // namespace

TEST_CASE("fp8_linear_sm90 agrees with the reference, run thread by thread", "[cpu][kernel]") {
  for (const Fp8LinearVariant& variant : test::emulator::fp8_linear_variants()) {
    CAPTURE(variant.name);
    const auto weights = bench::random_weights(kRows, variant.cols, 3);
    const auto input = input_for(variant);
    const auto expected = bench::reference_linear(weights, input);
    const auto launch = launch_for(variant, weights, input);
    const auto got = variant.run(launch, 1);
    const auto comparison = bench::compare(got, expected, kRows);
    CAPTURE(comparison.worst, comparison.unwritten, comparison.wrong_kind);
    CHECK(comparison.good());
    for (std::uint64_t seed = 2; seed < 4; ++seed)
      CHECK(variant.run(launch, seed) == got);  // whatever order threads and copies come in
  }
}

TEST_CASE("fp8_linear_sm90 splits K of 256 tokens over a card as it was fastest", "[cpu][kernel]") {
  using Family = kernels::Fp8LinearSm90;
  const auto limits = value_or_throw(cu::limits_of_arch("sm_90a"));
  const auto untuned = [&](const kernels::Fp8LinearProblem& problem) {
    const auto candidates = Family::space(problem, limits).candidates();
    REQUIRE_FALSE(candidates.empty());
    return candidates.front();
  };
  const auto wq_a = untuned({.rows = {1024}, .cols = 4096, .tokens = 256});
  CHECK(wq_a.TOKENS == 64);  // tiles of 128 would keep 64 of 132 multiprocessors busy
  CHECK(wq_a.SPLIT_K == 4);
  CHECK(wq_a.MULTICAST);
  CHECK(wq_a.STAGES == 6);
  const auto wo_b = untuned({.rows = {4096}, .cols = 8192, .tokens = 256});
  CHECK(wo_b.TOKENS == 128);
  CHECK(wo_b.SPLIT_K == 2);
  CHECK(wo_b.MULTICAST);
  CHECK(wo_b.STAGES == 6);
  // Every candidate of many tokens that splits K through L2 has a block for each strip.
  for (const int tokens : {64, 128, 192, 256, 512}) {
    const kernels::Fp8LinearProblem problem{.rows = {1024, 512}, .cols = 4096, .tokens = tokens};
    for (const auto& params : Family::space(problem, limits).candidates()) {
      if (!Family::splits_many(params)) continue;
      CHECK(static_cast<int>(Family::grid(problem, params, limits).z) == problem.strips());
      CHECK_FALSE(params.WARM_UP);
    }
  }
}
