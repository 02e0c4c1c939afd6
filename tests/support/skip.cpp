#include "tests/support/skip.hpp"

#include <fmt/core.h>

#include <catch2/catch.hpp>

namespace ingot::test {
namespace {
int skipped = 0;
}

bool skip(std::string_view reason) {
  ++skipped;
  fmt::print("skipped: {}: {}\n", Catch::getResultCapture().getCurrentTestName(), reason);
  return true;
}

int skip_reasons() {
  return skipped;
}

}  // namespace ingot::test
