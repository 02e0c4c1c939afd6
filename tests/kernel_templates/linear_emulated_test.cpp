#include <catch2/catch.hpp>

#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/linear_check.hpp"

using namespace ingot;
using kernels::Bf16Linear;
using kernels::Bf16LinearSm90;
using kernels::GroupedLinear;
using kernels::GroupedLinearFew;
using kernels::GroupedLinearSm90;

TEST_CASE("bf16 linears agree with the reference, run thread by thread", "[cpu][kernel]") {
  // Weights that fill no strip, tokens that fill no tile, more strips than blocks.
  for (const std::uint64_t seed : {1, 2, 3}) {
    test::EmulatedTarget target(seed, 3);
    test::check_bf16_linear(
        target, {.rows = {132, 256, 8}, .cols = 320, .tokens = 5},
        Bf16Linear::Params{.COLS = 320, .TOKENS = 8, .STAGES = 3, .X_RESIDENT = true});
    test::check_bf16_linear(target, {.rows = {8, 200}, .cols = 320, .tokens = 19},
                            Bf16Linear::Params{.COLS = 320, .TOKENS = 16, .STAGES = 2});
  }
}

TEST_CASE("bf16 linears of split blocks agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    test::EmulatedTarget target(seed, 12);
    test::check_bf16_linear(
        target, {.rows = {64, 132}, .cols = 320, .tokens = 21},
        Bf16Linear::Params{.COLS = 320, .TOKENS = 32, .STAGES = 3, .SPLIT_K = 4});
  }
}

TEST_CASE("bf16 linears whose blocks wait for none agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  // Two tiles of tokens, strips that blocks share; whichever block comes last.
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    test::EmulatedTarget target(seed, 12);
    test::check_bf16_linear(
        target, {.rows = {64, 132}, .cols = 320, .tokens = 21, .beside = true},
        Bf16Linear::Params{
            .COLS = 320, .TOKENS = 16, .STAGES = 2, .SPLIT_K = 3, .LAST_SUMS = true});
  }
}

TEST_CASE("bf16 linears of many tokens agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  // More tiles than blocks, rings that turn within a tile and between tiles, weights that fill no
  // strip, a last tile with few tokens.
  for (const std::uint64_t seed : {1, 2}) {
    test::EmulatedTarget target(seed, 2);
    test::check_bf16_linear(target, {.rows = {8, 132, 64}, .cols = 320, .tokens = 75},
                            Bf16LinearSm90::Params{.COLS = 320, .TOKENS = 64, .STAGES = 3});
    test::check_bf16_linear(target, {.rows = {200}, .cols = 128, .tokens = 9},
                            Bf16LinearSm90::Params{.COLS = 128});
  }
}

TEST_CASE("grouped linears agree with the reference, run thread by thread", "[cpu][kernel]") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    test::EmulatedTarget target(seed, 8);
    test::check_grouped_linear(target, {.groups = 2, .group_rows = 256, .cols = 384, .tokens = 13},
                               GroupedLinear::Params{.COLS = 384, .TOKENS = 8, .STAGES = 3});
    test::check_grouped_linear(
        target, {.groups = 2, .group_rows = 128, .cols = 384, .tokens = 19},
        GroupedLinear::Params{.COLS = 384, .TOKENS = 32, .STAGES = 2, .SPLIT_K = 2});
    test::check_grouped_linear(target, {.groups = 2, .group_rows = 256, .cols = 384, .tokens = 13},
                               GroupedLinear::Params{.COLS = 384,
                                                     .TOKENS = 16,
                                                     .STAGES = 3,
                                                     .SPLIT_K = 2,
                                                     .K_GROUPS = 2,
                                                     .BULK_COPY = true});
    test::check_grouped_linear(
        target, {.groups = 3, .group_rows = 128, .cols = 256, .tokens = 5},
        GroupedLinear::Params{.COLS = 256, .TOKENS = 8, .STAGES = 12, .K_GROUPS = 2});
  }
}

TEST_CASE("grouped linears of few tokens agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  // Rings that turn and that do not, warps without a tile, tiles that the warps share unevenly,
  // parts of an mma's columns, a last tile with few tokens.
  for (const std::uint64_t seed : {1, 2, 3}) {
    test::EmulatedTarget target(seed, 4);
    test::check_grouped_linear(
        target, {.groups = 2, .group_rows = 128, .cols = 1408, .tokens = 1},
        GroupedLinearFew::Params{.COLS = 1408, .TOKENS = 1, .ROWS = 128, .STAGES = 3});
    test::check_grouped_linear(
        target, {.groups = 2, .group_rows = 128, .cols = 384, .tokens = 3},
        GroupedLinearFew::Params{.COLS = 384, .TOKENS = 2, .ROWS = 32, .STAGES = 2, .WARPS = 8});
    test::check_grouped_linear(
        target, {.groups = 1, .group_rows = 128, .cols = 1152, .tokens = 4},
        GroupedLinearFew::Params{.COLS = 1152, .TOKENS = 4, .ROWS = 16, .STAGES = 2, .WARPS = 8});
    test::check_grouped_linear(target, {.groups = 1, .group_rows = 256, .cols = 1664, .tokens = 13},
                               GroupedLinearFew::Params{.COLS = 1664});
  }
}

TEST_CASE("grouped linears of many tokens agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  // More tiles than blocks, rings that turn, a last tile with few tokens.
  for (const std::uint64_t seed : {1, 2}) {
    test::EmulatedTarget target(seed, 2);
    test::check_grouped_linear(
        target, {.groups = 2, .group_rows = 128, .cols = 384, .tokens = 75},
        GroupedLinearSm90::Params{.COLS = 384, .TOKENS = 64, .W_STAGES = 2, .X_STAGES = 3});
    test::check_grouped_linear(target, {.groups = 1, .group_rows = 256, .cols = 256, .tokens = 9},
                               GroupedLinearSm90::Params{.COLS = 256, .TOKENS = 256});
  }
}
