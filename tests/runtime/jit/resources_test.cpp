#include <catch2/catch.hpp>

#include "runtime/jit/compiler.hpp"

using namespace ingot;

TEST_CASE("resources are read from the assembler's log, functions that are called included",
          "[cpu][jit]") {
  const auto resources = jit::resources_in_log(
      "k.cuh(3): warning #177-D: variable \"x\" was declared but never referenced\n"
      "ptxas info    : 4 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     256 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 256 bytes cumulative stack size, 512 "
      "bytes smem\n"
      "ptxas info    : Compile time = 14.944 ms\n"
      "ptxas info    : Function properties for helper\n"
      "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n");
  REQUIRE(resources);
  CHECK(*resources == jit::Resources{.registers = 40,
                                     .spill_store_bytes = 16,
                                     .spill_load_bytes = 16,
                                     .stack_bytes = 264,
                                     .smem_bytes = 512});
  CHECK(resources->spills());
}

TEST_CASE("a log without a report is an error, not a kernel without registers", "[cpu][jit]") {
  CHECK(jit::resources_in_log("").error().code == ErrorCode::corrupt);
  CHECK(jit::resources_in_log("Used registers\nregisters 4\n").error().code == ErrorCode::corrupt);
}
