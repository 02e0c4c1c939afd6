#include "runtime/comm/nccl_api.hpp"

#include <catch2/catch.hpp>

#include "runtime/base/shared_library.hpp"
#include "tests/support/libraries.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;

TEST_CASE("NCCL opens without a driver and tells its version", "[cpu][comm]") {
  const auto nccl = nccl::NcclApi::open(test::library_directories());
  if (!nccl && test::skip("no NCCL: " + nccl.error().message)) return;
  CHECK((*nccl)->version() >= 22000);
  CHECK_THAT((*nccl)->version_text(), Catch::StartsWith("2."));
  CHECK_THROWS_WITH((*nccl)->check(nccl::ncclInvalidUsage, "ncclAllReduce"),
                    Catch::Contains("ncclAllReduce failed: invalid usage"));
}

TEST_CASE("a missing NCCL is an error that names the file and the package", "[cpu][comm]") {
  if (SharedLibrary::open("libnccl.so.2") && test::skip("the dynamic linker knows NCCL")) return;
  const test::TempDir empty;
  const auto nccl = nccl::NcclApi::open({empty.path()});
  REQUIRE_FALSE(nccl);
  CHECK(nccl.error().code == ErrorCode::not_found);
  CHECK_THAT(nccl.error().message, Catch::Contains("libnccl.so.2") && Catch::Contains("libnccl2"));
}
