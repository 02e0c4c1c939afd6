#include "runtime/cuda/driver_branch.hpp"

#include <catch2/catch.hpp>

using ingot::cu::driver_branch;

TEST_CASE("a driver's branch is the first part of its version", "[cpu][cuda]") {
  CHECK(driver_branch("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 "
                      "01:15:15 UTC 2023\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
                      12020) == "535");
  CHECK(driver_branch("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  "
                      "Release Build  (dvs-builder@U22)\n",
                      13000) == "580");
}

TEST_CASE("a driver that does not say its version goes by the CUDA it serves, or is unknown",
          "[cpu][cuda]") {
  CHECK(driver_branch("", 13000) == "cuda-13.0");
  CHECK(driver_branch("NVRM version: something else\nGCC version: 12.2.0\n", 12040) == "cuda-12.4");
  CHECK(driver_branch("version 5.", 0) == "unknown");
  CHECK(driver_branch("", 0) == "unknown");
}
