#include "src/cli/byte_progress.hpp"

#include <catch2/catch.hpp>

using namespace ingot;

TEST_CASE("byte progress says how much, how fast and how long still", "[cpu][cli]") {
  std::string written;
  double now = 100;
  {
    Progress::Output output;
    output.write = [&](std::string_view bytes) { written += bytes; };
    output.now_s = [&] { return now; };
    output.columns = [] { return 80; };
    ByteProgress progress("hashing", output);
    progress.update(1'000'000'000, 160'000'000'000);
    CHECK(written.empty());
    now += 20;
    progress.update(40'000'000'000, 160'000'000'000);
  }
  CHECK(written == "hashing 40.0 of 160.0 GB, 2.00 GB/s, 60 s left\n");
}
