#include <catch2/catch.hpp>

#include "tests/support/attention_slots_check.hpp"
#include "tests/support/emulator/emulated_target.hpp"

using namespace ingot;
using Params = kernels::AttentionSlotsParams;

TEST_CASE("lists of keys hold the window and the finished blocks, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  const auto rows = test::edge_rows();
  test::check_attention_slots(target, {.ring = 128, .hca_slots = 8192}, {.SPLIT = 1}, rows);
  test::check_attention_slots(target, {.ring = 640, .hca_slots = 8199}, {.RING = 640}, rows);
  const Params narrow{.WINDOW = 8, .RING = 12, .PAGE_ENTRIES = 2, .THREADS = 32, .SPLIT = 2};
  test::check_attention_slots(
      target, {.window = 8, .ring = 12, .page_entries = 2, .hca_slots = 8193}, narrow, rows);
}

TEST_CASE("lists of keys for one row, an idle one, and none", "[cpu][kernel]") {
  test::EmulatedTarget target;
  for (const int position : {0, 127, 16'511}) {
    test::check_attention_slots(target, {.hca_slots = 129}, {.SPLIT = 1}, {{position, 2}});
    test::check_attention_slots(target, {.hca_slots = 129}, {.SPLIT = 1}, {{position, -1}});
  }
  test::check_attention_slots(target, {.hca_slots = 129}, {.SPLIT = 1}, {});
}

TEST_CASE("rows of a wide step see each other beside the rings, and the newest are kept in them",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  test::check_attention_slots(target, {.ring = 128, .wide = true, .hca_slots = 65},
                              {.WIDE = true, .SPLIT = 1}, test::wide_rows(128));
  test::check_attention_slots(target, {.ring = 384, .wide = true, .hca_slots = 65},
                              {.RING = 384, .WIDE = true}, test::wide_rows(384));
  // Rows without neighbours are as in any step, but for where they lie.
  test::check_attention_slots(target, {.ring = 384, .wide = true, .hca_slots = 8199},
                              {.RING = 384, .WIDE = true}, {{127, 3}, {1021, 7}, {0, 1}, {5, -1}});
}

TEST_CASE("a list of keys that is too short is cut and never overrun", "[cpu][kernel]") {
  test::EmulatedTarget target;
  for (const int slots : {0, 1, 63}) {
    test::check_attention_slots(target, {.ring = 640, .hca_slots = slots}, {.RING = 640},
                                test::edge_rows());
  }
}
