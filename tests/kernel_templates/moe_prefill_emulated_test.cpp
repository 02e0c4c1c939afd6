#include <catch2/catch.hpp>
#include <set>

#include "kernel_templates/expert_order.space.hpp"
#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/moe_prefill_check.hpp"

using namespace ingot;
using test::MoeExperts;
using test::MoePrefillVariants;
using test::MoeRouting;

namespace {

/// Those that meson.build lists: 32 experts, tiles of up to 32 tokens.
MoePrefillVariants small_variants(bool round_experts) {
  kernels::MoePrefillSm90Params params;
  params.HIDDEN = 512;
  params.INTER = 256;
  params.EXPERTS = 32;
  params.TOPK = 6;
  params.TOKENS = 32;
  params.STAGES = 3;
  params.ROUND_EXPERTS = round_experts;
  MoePrefillVariants variants{.gate_up = params, .down = params, .order_threads = 256};
  variants.gate_up.ROUND_EXPERTS = true;
  variants.down.DOWN = true;
  variants.down.STAGES = 4;
  return variants;
}

void check(int tokens, MoeRouting routing, int spread, bool round_experts, bool nan = false) {
  MoeExperts experts =
      test::random_moe({.hidden = 512, .inter = 256, .experts = 32, .topk = 6, .tokens = tokens},
                       routing, spread, 11);
  if (nan) test::poison(experts, tokens / 2, 130);
  test::EmulatedTarget target(5, 3);
  const MoePrefillVariants variants = small_variants(round_experts);
  target.prepare(variants.all());
  const auto errors = test::check_moe_prefill(target, variants, experts, 2);
  // The emulator adds exactly: no rounding turns but where the order of sums shows.
  CHECK(errors.activations <= 2e-3);
}

}  // namespace

TEST_CASE("moe_prefill_sm90 agrees with the reference on the emulator", "[cpu][moe_prefill]") {
  check(37, MoeRouting::uniform, 5, true, true);
}
TEST_CASE("moe_prefill_sm90 takes an expert with all tokens and experts with none on the emulator",
          "[cpu][moe_prefill]") {
  check(70, MoeRouting::same, 5, false);
  check(1, MoeRouting::leave_out, 5, true);
}
TEST_CASE("moe_prefill_sm90 is exact where scales lie 2^20 apart on the emulator",
          "[cpu][moe_prefill]") {
  check(9, MoeRouting::first_full, 21, true);
}

TEST_CASE("an expert's first row leaves room for the rows of those below", "[cpu][moe_prefill]") {
  // Experts with 0 to 17 rows each, in a fixed mix.
  int before = 0, last = 0;
  for (int expert = 0; expert < 256; ++expert) {
    const int first = kernels::expert_first_row(before, expert);
    REQUIRE(first % 8 == 0);
    REQUIRE(first >= last);
    const int count = expert * 7 % 18;
    last = first + (count + 7) / 8 * 8;
    before += count;
  }
  REQUIRE(last <= kernels::expert_rows((before + 5) / 6, 6, 256));
}

TEST_CASE("a tile holds every column of a row once", "[cpu][moe_prefill]") {
  std::set<int> places;
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 128; ++column)
      places.insert(kernels::expert_tile_offset(row, column));
  REQUIRE(places.size() == 1024);
  REQUIRE(*places.begin() == 0);
  REQUIRE(*places.rbegin() == 1023);
}
