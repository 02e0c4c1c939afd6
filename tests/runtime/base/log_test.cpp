#include "runtime/base/log.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>

#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

/// What `body` wrote to standard error.
template <class Body>
std::string standard_error_of(Body body) {
  const test::TempDir dir;
  const auto file = dir / "stderr";
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  REQUIRE(std::freopen(file.c_str(), "w", stderr) != nullptr);
  body();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  return test::read_file(file);
}

}  // namespace

TEST_CASE("log lines go to standard error with their severity", "[cpu][base]") {
  CHECK(standard_error_of([] {
          log::info("loaded {} shards", 3);
          log::warn("cache is read-only");
          log::debug("dropped by default");
        }) == "ingot: loaded 3 shards\ningot: warning: cache is read-only\n");
}
