#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/emulator/launch_order.hpp"
#include "tests/support/row_kernels_check.hpp"

using namespace ingot;
using kernels::Embedding;
using kernels::QNormRope;

TEST_CASE("the embedding copies rows and never reads a bad id, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  test::check_embedding(target, {.hidden = 264, .streams = 4, .tokens = 11},
                        {.HIDDEN = 264, .STREAMS = 4, .THREADS = 32});
  test::check_embedding(target, {.hidden = 264, .streams = 1, .tokens = 11},
                        {.HIDDEN = 264, .STREAMS = 1, .THREADS = 64});
}

TEST_CASE("queries are normed and turned as the reference does, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  test::check_q_norm_rope(target, {.dims = 512, .heads = 6, .tokens = 5},
                          {.DIMS = 512, .WARPS = 2, .HEADS_PER_WARP = 2});
  test::check_q_norm_rope(target, {.dims = 256, .heads = 5, .tokens = 2},
                          {.DIMS = 256, .WARPS = 4, .HEADS_PER_WARP = 1});
}

TEST_CASE("the shared expert's activation is quantised as the reference does, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target;
  constexpr float kNone = std::numeric_limits<float>::infinity();
  const int inter = GENERATE(128, 256, 640, 2048);
  const int tokens = GENERATE(1, 2, 13);
  for (const int threads : {32, 256}) {
    for (const float limit : {10.0F, 0.5F, kNone}) {
      CHECK(test::check_swiglu_quant(target, {.inter = inter, .tokens = tokens},
                                     {.THREADS = threads}, limit) == 0);
    }
  }
}

TEST_CASE("the experts' sum is rounded once, run thread by thread", "[cpu][kernel]") {
  test::EmulatedTarget target;
  const int tokens = GENERATE(1, 3);
  for (const int hidden : {264, 4096}) {
    test::check_expert_sum(target, {.hidden = hidden, .tokens = tokens},
                           {.THREADS = 64, .VECTOR = 4});
    test::check_expert_sum(target, {.hidden = hidden, .tokens = tokens},
                           {.THREADS = 128, .VECTOR = 8});
  }
}

TEST_CASE("the KV append lets the queries' linear onto the card at its own turn, not before",
          "[cpu][kernel]") {
  const int tokens = GENERATE(1, 3);
  const auto order = test::emulator::kv_append_with_latent_order(tokens);
  CHECK(order.never_waited == 0);
  CHECK(order.before_turn == 0);
  CHECK(order.after_turn == 2 * 128);
}
