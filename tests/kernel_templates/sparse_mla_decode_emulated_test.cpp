#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/support/emulator/sparse_mla_variants.hpp"
#include "tests/support/sparse_mla_cases.hpp"

using namespace ingot::test;
using emulator::SparseMlaVariant;

namespace {

SparseMlaShape shape_for(const SparseMlaVariant& variant) {
  return {.rows = variant.rows,
          .heads = variant.tile_heads == 1 ? 8 : variant.tile_heads,
          .window_slots = 72,
          .selected_slots = 50,
          .window_layout = variant.window_layout,
          .selected_layout = variant.selected_layout,
          .window_entries = 130,
          .selected_entries = 200};
}

}  // namespace

TEST_CASE("sparse MLA decode templates agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  for (const SparseMlaVariant& variant : emulator::sparse_mla_variants()) {
    for (const SparseMlaCase& one : sparse_mla_cases(shape_for(variant))) {
      CAPTURE(variant.name, one.name);
      const auto reference =
          sparse_mla_reference(one.inputs, variant.has_sink, variant.inverse_rope);
      const auto got = variant.run(variant, one.inputs, 1);
      const auto difference = compare(got, reference);
      CAPTURE(difference.relative, difference.worst_group);
      REQUIRE_FALSE(difference.nan_differs);
      REQUIRE(difference.relative <= one.tolerance);
      REQUIRE(difference.worst_group <= one.group_tolerance);
    }
  }
}

TEST_CASE("sparse MLA decode gives the same bits whatever order threads and copies come in",
          "[cpu][kernel]") {
  for (const SparseMlaVariant& variant : emulator::sparse_mla_variants()) {
    CAPTURE(variant.name);
    auto shape = shape_for(variant);
    shape.rows -= 1;
    shape.selected_slots = 200;
    const auto inputs = random_inputs(shape);
    const auto first = variant.run(variant, inputs, 1);
    for (std::uint64_t seed = 2; seed < 5; ++seed)
      REQUIRE(variant.run(variant, inputs, seed) == first);
  }
}

TEST_CASE("the emulator notices a thread that waits for ever", "[cpu][kernel]") {
  const auto lonely = [] {
    if (emulator::thread_index().x == 0) emulator::sync_block(1, 64, true);
  };
  REQUIRE_THROWS_WITH(
      emulator::run({.grid = {}, .block = {32}, .smem_bytes = 16, .seed = 1}, lonely),
      Catch::Contains("deadlock"));
}
