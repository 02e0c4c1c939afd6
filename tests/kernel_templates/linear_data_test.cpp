#include "tools/kernel_bench/linear_data.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "kernel_templates/fp8_linear.args.h"
#include "kernel_templates/fp8_weight_tiles.hpp"
#include "src/reference/numerics.hpp"

using namespace ingot;

TEST_CASE("the reference of FP8 linears equals sums in double over the tiles that kernels read",
          "[cpu][families]") {
  constexpr int kRows = 256;
  constexpr int kCols = 384;
  constexpr int kTokens = 9;
  const auto weights = bench::random_weights(kRows, kCols, 1);
  const auto input = bench::random_input(kTokens, kCols, 2);
  const auto tiles = weights.tiles();
  const auto x_tiles = input.tiles();
  const auto x_scales = input.tile_scales();
  const auto y = bench::reference_linear(weights, input);
  double worst = 0;
  for (int token = 0; token < kTokens; ++token) {
    for (int row = 0; row < kRows; ++row) {
      double sum = 0;
      double magnitude = 0;
      for (int col = 0; col < kCols; ++col) {
        const auto line = static_cast<std::size_t>(col / 128 * input.rows + token);
        const auto code = static_cast<std::uint8_t>(
            x_tiles[line * 128 +
                    static_cast<std::size_t>(((col % 128 / 16) ^ (token % 8)) * 16 + col % 16)]);
        const double x = static_cast<double>(reference::e4m3_value(code)) * x_scales[line];
        const auto w_code =
            static_cast<std::uint8_t>(tiles[kernels::fp8_tile_index(row, col, kCols)]);
        const double w =
            static_cast<double>(reference::e4m3_value(w_code)) *
            reference::e8m0_value(
                weights.scales[static_cast<std::size_t>(row / 128 * (kCols / 128) + col / 128)]);
        sum += x * w;
        magnitude += std::abs(x * w);
      }
      const double error = std::abs(y[static_cast<std::size_t>(token * kRows + row)] - sum);
      worst = std::max(worst, error / (magnitude + 1e-30));
    }
  }
  CHECK(worst < 1e-5);
}

TEST_CASE("a comparison finds what is wrong, unwritten and out of place", "[cpu][families]") {
  const std::vector<float> expected{1.0F, -2.0F, 0.5F, 100.0F};
  const auto bits = [](float value) { return reference::bf16_bits(value); };
  CHECK(bench::compare({bits(1.0F), bits(-2.0F), bits(0.5F), bits(100.0F)}, expected, 4).good());
  CHECK_FALSE(
      bench::compare({bits(1.0F), bits(-2.0F), bits(0.5F), bits(102.0F)}, expected, 4).good());
  CHECK(bench::compare({bits(1.0F), bench::kPoison, bits(0.5F), bits(100.0F)}, expected, 4)
            .unwritten == 1);
  CHECK(bench::compare({bits(1.0F), 0x7fc0, bits(0.5F), bits(100.0F)}, expected, 4).wrong_kind ==
        1);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(bench::compare({bits(infinity)}, {infinity}, 1).good());
  CHECK_FALSE(bench::compare({bits(3.0F)}, {infinity}, 1).good());
  CHECK_FALSE(bench::compare({bits(3.0F)}, {std::nanf("")}, 1).good());
}
