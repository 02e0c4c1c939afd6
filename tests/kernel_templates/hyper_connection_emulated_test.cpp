#include <catch2/catch.hpp>

#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/hyper_connection_check.hpp"

using namespace ingot;
using kernels::HcPost;
using kernels::HcPre;
using kernels::HcPreWide;

namespace {

struct Case {
  HcPre::Problem problem;
  HcPre::Params params;
};

/// One group of tokens, several, several tiles in one; a last tile that is not full; warps without
/// channels; more chunks than stay in registers.
std::vector<Case> hc_pre_cases() {
  const HcPre::Params after{.HIDDEN = 256,
                            .AFTER_SUBLAYER = true,
                            .QUANTIZE = true,
                            .SPLIT_K = 4,
                            .WARPS = 4,
                            .LANE_CHANNELS = 4};
  const HcPre::Params before{.HIDDEN = 256, .SPLIT_K = 2, .WARPS = 4, .LANE_CHANNELS = 4};
  const HcPre::Params head{.HIDDEN = 256,
                           .HEAD = true,
                           .AFTER_SUBLAYER = true,
                           .SPLIT_K = 8,
                           .WARPS = 4,
                           .LANE_CHANNELS = 2};
  return {{{.hidden = 256, .tokens = 1, .after_sublayer = true, .quantize = true}, after},
          {{.hidden = 256, .tokens = 37, .after_sublayer = true, .quantize = true}, after},
          {{.hidden = 256, .tokens = 21}, before},
          {{.hidden = 256, .tokens = 6, .head = true, .after_sublayer = true}, head}};
}

/// Several blocks finish a token: several teams of them, and so many tokens that each block's
/// Sinkhorn takes more than one round; halves of tiles; groups of channels that blocks and warps
/// cannot share alike; weights that do not stay in registers.
std::vector<Case> hc_pre_shared_cases() {
  const HcPre::Params after{.HIDDEN = 512,
                            .AFTER_SUBLAYER = true,
                            .QUANTIZE = true,
                            .SPLIT_K = 8,
                            .WARPS = 4,
                            .LANE_CHANNELS = 4,
                            .TILE_TOKENS = 8,
                            .FINISHERS = 4};
  const HcPre::Params before{
      .HIDDEN = 256, .SPLIT_K = 2, .WARPS = 4, .LANE_CHANNELS = 4, .FINISHERS = 2};
  const HcPre::Params head{.HIDDEN = 256,
                           .HEAD = true,
                           .AFTER_SUBLAYER = true,
                           .SPLIT_K = 8,
                           .WARPS = 4,
                           .TILE_TOKENS = 8,
                           .FINISHERS = 2};
  const HcPre::Params odd{.HIDDEN = 1152,
                          .AFTER_SUBLAYER = true,
                          .QUANTIZE = true,
                          .SPLIT_K = 4,
                          .WARPS = 4,
                          .LANE_CHANNELS = 4,
                          .TILE_TOKENS = 8,
                          .FINISHERS = 2};
  return {{{.hidden = 512, .tokens = 1, .after_sublayer = true, .quantize = true}, after},
          {{.hidden = 512, .tokens = 21, .after_sublayer = true, .quantize = true}, after},
          {{.hidden = 256, .tokens = 37}, before},
          {{.hidden = 256, .tokens = 6, .head = true, .after_sublayer = true}, head},
          {{.hidden = 1152, .tokens = 9, .after_sublayer = true, .quantize = true}, odd}};
}

}  // namespace

TEST_CASE("hyper-connections in front of a sublayer agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  for (const Case& c : hc_pre_cases()) {
    target.prepare({test::variant_of<HcPre>(c.params)});
    test::check_hc_pre(target, c.problem, c.params);
  }
}

TEST_CASE("hyper-connections do not depend on the order that threads come in", "[cpu][kernel]") {
  for (const std::uint64_t seed : {2, 3, 4}) {
    test::EmulatedTarget target(seed, 4);  // fewer multiprocessors: more tiles to a group
    const Case c = hc_pre_cases()[1];
    test::check_hc_pre(target, c.problem, c.params);
  }
}

TEST_CASE("hyper-connections whose tokens several blocks finish agree with the reference",
          "[cpu][kernel]") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    test::EmulatedTarget target(seed);
    for (const Case& c : hc_pre_shared_cases())
      test::check_hc_pre(target, c.problem, c.params);
  }
}

TEST_CASE("hyper-connections of many tokens agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  // A ring that is longer than its work, or asked to be filled first; more pieces than the tensor
  // cores add up in a row; more vectors than threads of a team; blocks that are not full.
  for (const std::uint64_t seed : {1, 2, 3}) {
    test::EmulatedTarget target(seed);
    test::check_hc_pre(target,
                       {.hidden = 384, .tokens = 37, .after_sublayer = true, .quantize = true},
                       HcPreWide::Params{.HIDDEN = 384,
                                         .AFTER_SUBLAYER = true,
                                         .TOKENS = 32,
                                         .GROUPS = 2,
                                         .STAGES = 2,
                                         .COPY_FIRST = true});
    test::check_hc_pre(
        target, {.hidden = 256, .tokens = 21, .after_sublayer = true, .quantize = true},
        HcPreWide::Params{.HIDDEN = 256, .AFTER_SUBLAYER = true, .TOKENS = 16, .STAGES = 5});
    test::check_hc_pre(target, {.hidden = 1152, .tokens = 19, .quantize = true},
                       HcPreWide::Params{.HIDDEN = 1152, .GROUPS = 3, .STAGES = 2});
  }
}

TEST_CASE("hyper-connections behind a sublayer agree with the reference, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  for (const HcPost::Params& params : {HcPost::Params{.HIDDEN = 256, .THREADS = 32, .VECTOR = 8},
                                       HcPost::Params{.HIDDEN = 256, .THREADS = 64, .VECTOR = 2}}) {
    test::check_hc_post(target, {.hidden = 256, .tokens = 5}, params);
  }
}
