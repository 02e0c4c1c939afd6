#include <catch2/catch.hpp>

#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/router_check.hpp"

using namespace ingot;
using kernels::RouterTopk;

TEST_CASE("the router agrees with the reference, run thread by thread", "[cpu][kernel]") {
  test::EmulatedTarget target;
  RouterTopk::Params params{.HIDDEN = 320, .EXPERTS = 32, .WARPS = 4};
  for (const int tokens : {1, 37})
    test::check_router_topk(target, {.hidden = 320, .experts = 32, .tokens = tokens}, params);
  params.HASH = true;
  params.BLOCK_EXPERTS = 4;
  test::check_router_topk(target, {.hidden = 320, .experts = 32, .tokens = 21, .hash = true},
                          params);
}

TEST_CASE("the router chooses from given logits as the reference does, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  RouterTopk::Params params{.HIDDEN = 64, .EXPERTS = 256, .GATE = false, .WARPS = 2};
  test::check_router_topk(target, {.hidden = 64, .tokens = 7, .gate = false}, params);
  params.HASH = true;
  test::check_router_topk(target, {.hidden = 64, .tokens = 7, .hash = true, .gate = false}, params);
}

TEST_CASE("the router does not depend on the order that threads come in", "[cpu][kernel]") {
  for (const std::uint64_t seed : {2, 3, 4}) {
    test::EmulatedTarget target(seed, 3);  // fewer multiprocessors than blocks of rows
    test::check_router_topk(target, {.hidden = 320, .experts = 32, .tokens = 37},
                            {.HIDDEN = 320, .EXPERTS = 32, .WARPS = 4});
  }
}
