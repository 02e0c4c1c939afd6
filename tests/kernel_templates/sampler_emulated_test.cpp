#include <catch2/catch.hpp>

#include "tests/support/emulator/emulated_target.hpp"
#include "tests/support/sampler_check.hpp"

using namespace ingot;

TEST_CASE("the device's sampler chooses the host's tokens, run thread by thread", "[cpu][kernel]") {
  test::EmulatedTarget target;
  const test::SamplerCheck check{.vocabulary = 1003, .rows_at_once = 5, .steps = 2, .every = 3};
  CHECK(test::check_sample_tokens(target, check, {.THREADS = 256, .SPLIT = 1}) > 40);
}

TEST_CASE("the blocks of a row choose the host's tokens together, run thread by thread",
          "[cpu][kernel]") {
  test::EmulatedTarget target(7);
  const test::SamplerCheck check{.vocabulary = 4099, .rows_at_once = 2, .steps = 1, .every = 5};
  CHECK(test::check_sample_tokens(target, check, {.THREADS = 256, .SPLIT = 4}) > 10);
}
