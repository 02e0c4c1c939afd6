#include <catch2/catch.hpp>

#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/shared_expert_check.hpp"

using namespace ingot;
using kernels::SharedExpertFew;

TEST_CASE(
    "the shared expert and the router of few tokens agree with the reference, run thread by "
    "thread",
    "[cpu][kernel]") {
  // Whole lines of an mma for gate and for up, and half of them; warps without a tile, tiles that
  // the warps share unevenly, blocks without channels; fewer tokens than there is room for.
  for (const std::uint64_t seed : {1, 2, 3}) {
    test::EmulatedTarget target(seed);
    test::check_shared_expert_few(target, {.hidden = 512, .inter = 256, .experts = 32, .tokens = 1},
                                  {.HIDDEN = 512, .INTER = 256, .EXPERTS = 32, .TOKENS = 1});
    test::check_shared_expert_few(target, {.hidden = 512, .inter = 128, .experts = 32, .tokens = 3},
                                  {.HIDDEN = 512, .INTER = 128, .EXPERTS = 32, .TOKENS = 4});
  }
  test::EmulatedTarget target;
  test::check_shared_expert_few(target, {.hidden = 1024, .inter = 512, .experts = 32, .tokens = 7},
                                {.HIDDEN = 1024, .INTER = 512, .EXPERTS = 32, .TOKENS = 8});
  test::check_shared_expert_few(
      target, {.hidden = 1280, .inter = 256, .experts = 40, .top = 4, .tokens = 2, .hash = true},
      {.HIDDEN = 1280, .INTER = 256, .EXPERTS = 40, .TOP = 4, .HASH = true, .TOKENS = 2});
}
