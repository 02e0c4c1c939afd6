#include <catch2/catch.hpp>

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
