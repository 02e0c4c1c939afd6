#include "runtime/jit/arch.hpp"

#include <catch2/catch.hpp>

#include "runtime/cuda/device_limits.hpp"

using namespace ingot;

TEST_CASE("compute capabilities map to architectures by a table", "[cpu][jit]") {
  CHECK(jit::arch_of(8, 0) == "sm_80");
  CHECK(jit::arch_of(8, 6) == "sm_86");
  CHECK(jit::arch_of(9, 0) == "sm_90a");
  CHECK(jit::arch_of(10, 3) == "sm_103a");
  CHECK(jit::arch_of(11, 0) == "sm_110a");
  CHECK(jit::arch_of(12, 1) == "sm_121a");
}

TEST_CASE("an unknown compute capability is refused by name with a way to try it", "[cpu][jit]") {
  const auto arch = jit::arch_of(13, 7);
  REQUIRE_FALSE(arch);
  CHECK(arch.error().code == ErrorCode::unsupported);
  CHECK_THAT(arch.error().message, Catch::Contains("13.7") && Catch::Contains("--arch sm_137") &&
                                       Catch::Contains("sm_90a"));
}

TEST_CASE("architecture names are read and others refused", "[cpu][jit]") {
  CHECK(jit::arch_number("sm_90a") == 90);
  CHECK(jit::arch_number("sm_100f") == 100);
  CHECK(jit::arch_number("sm_75") == 75);
  const char* bad = GENERATE("", "sm_", "sm_9", "sm_90b", "compute_90", "sm_90aa", "sm_-9", "90",
                             "sm_9999", "sm_90 ");
  CAPTURE(bad);
  CHECK(jit::arch_number(bad) == std::nullopt);
  CHECK(jit::parse_arch(bad).error().code == ErrorCode::invalid_argument);
}

TEST_CASE("a cubin runs on its own chip, or on later minors when it asks for no chip's features",
          "[cpu][jit]") {
  CHECK(jit::runs_on("sm_90a", 9, 0));
  CHECK_FALSE(jit::runs_on("sm_100a", 10, 3));
  CHECK(jit::runs_on("sm_80", 8, 6));
  CHECK_FALSE(jit::runs_on("sm_86", 8, 0));
  CHECK_FALSE(jit::runs_on("sm_80", 9, 0));
  CHECK_FALSE(jit::runs_on("nonsense", 9, 0));
}

TEST_CASE("every architecture of the table has limits, and the driver's fit a plan made without it",
          "[cpu][jit]") {
  for (const jit::Arch& arch : jit::known_archs()) {
    CAPTURE(arch.name);
    const auto limits = cu::limits_of_arch(arch.name);
    REQUIRE(limits);
    CHECK(limits->arch == arch.compute_major * 10 + arch.compute_minor);
    CHECK(limits->smem_per_block_bytes <= limits->smem_per_sm_bytes);
    CHECK(limits->has_clusters == (arch.compute_major >= 9));
  }
  CHECK(cu::limits_of_arch("sm_90a")->smem_per_block_bytes == 232448);
  CHECK(cu::limits_of_arch("sm_999")->arch == 999);
  CHECK(cu::limits_of_arch("sm_999")->smem_per_block_bytes == 99 * 1024);
  CHECK(cu::limits_of_arch("none").error().code == ErrorCode::invalid_argument);
}
