#include "runtime/base/log.hpp"

#include <catch2/catch.hpp>

#include "tests/support/standard_error.hpp"

using namespace ingot;

TEST_CASE("log lines go to standard error with their severity", "[cpu][base]") {
  CHECK(test::standard_error_of([] {
          log::info("loaded {} shards", 3);
          log::warn("cache is read-only");
          log::debug("dropped by default");
        }) == "ingot: loaded 3 shards\ningot: warning: cache is read-only\n");
}
