#include <catch2/catch.hpp>
#include <set>
#include <type_traits>

#include "kernel_templates/moe_prefill.space.hpp"
#include "kernel_templates/moe_prefill_sm90.space.hpp"
#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/moe_prefill_check.hpp"

using namespace ingot;
using kernels::MoePrefill;
using kernels::MoePrefillSm90;
using test::MoeExperts;
using test::MoePrefillVariants;
using test::MoeRouting;

namespace {

/// Those that meson.build lists: 32 experts, tiles of up to 32 tokens, of the second
/// moe_prefill_sm90 up to 80.
template <class Family>
MoePrefillVariants small_variants(bool round_experts, bool second, const cu::DeviceLimits& limits) {
  typename Family::Params params;
  params.HIDDEN = 512;
  params.INTER = 256;
  params.EXPERTS = 32;
  params.TOPK = 6;
  params.TOKENS = 32;
  params.STAGES = 3;
  auto down = params;
  down.DOWN = true;
  down.ROUND_EXPERTS = round_experts;
  if constexpr (std::is_same_v<Family, MoePrefill>) {
    params.E4M3 = down.E4M3 = second;
    params.BULK_COPY = down.BULK_COPY = second;
  } else {
    down.STAGES = 4;
    if (second) {
      params.TOKENS = down.TOKENS = 80;
      params.STAGES = down.STAGES = 6;
    }
  }
  return test::moe_prefill_variants<Family>(params, down, limits, 256);
}

template <class Family>
void check(int tokens, MoeRouting routing, int spread, bool round_experts, bool nan = false,
           bool second = false) {
  MoeExperts experts =
      test::random_moe({.hidden = 512, .inter = 256, .experts = 32, .topk = 6, .tokens = tokens},
                       routing, spread, 11);
  if (nan) test::poison(experts, tokens / 2, 130);
  test::EmulatedTarget target(5, 5);
  const auto variants = small_variants<Family>(round_experts, second, target.limits());
  target.prepare(variants.all());
  const auto errors = test::check_moe_prefill(target, variants, experts, 2);
  // The emulator adds exactly: no rounding turns but where the order of sums shows.
  CHECK(errors.activations <= 2e-3);
}

}  // namespace

TEST_CASE("moe_prefill_sm90 agrees with the reference on the emulator", "[cpu][moe_prefill]") {
  check<MoePrefillSm90>(37, MoeRouting::uniform, 5, true, true);
}
TEST_CASE("moe_prefill_sm90 takes an expert with all tokens and experts with none on the emulator",
          "[cpu][moe_prefill]") {
  check<MoePrefillSm90>(70, MoeRouting::same, 5, false);
  check<MoePrefillSm90>(1, MoeRouting::leave_out, 5, true);
}
TEST_CASE("moe_prefill_sm90 agrees with the reference on the emulator, products in two parts",
          "[cpu][moe_prefill]") {
  check<MoePrefillSm90>(75, MoeRouting::same, 5, true, true, true);
  check<MoePrefillSm90>(86, MoeRouting::first_full, 21, true, false, true);
}
TEST_CASE("moe_prefill_sm90 is exact where scales lie 2^20 apart on the emulator",
          "[cpu][moe_prefill]") {
  check<MoePrefillSm90>(9, MoeRouting::first_full, 21, true);
}
TEST_CASE("expert_gather loses next to nothing where a row gets one scale on the emulator",
          "[cpu][moe_prefill]") {
  test::EmulatedTarget target(5, 5);
  const kernels::ExpertGatherParams params{.HIDDEN = 512, .ROW_SCALES = true};
  target.prepare({test::variant_of<kernels::ExpertGather>(params)});
  test::check_row_scales(target, params);
}

TEST_CASE("moe_prefill agrees with the reference on the emulator, f16 and 16-byte copies",
          "[cpu][moe_prefill]") {
  check<MoePrefill>(37, MoeRouting::first_full, 21, true, true);
}
TEST_CASE("moe_prefill agrees with the reference on the emulator, e4m3 and bulk copies",
          "[cpu][moe_prefill]") {
  check<MoePrefill>(45, MoeRouting::leave_out, 21, false, true, true);
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
