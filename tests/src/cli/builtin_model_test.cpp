#include "src/cli/builtin_model.hpp"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

void make_model(const fs::path& folder) {
  fs::create_directories(folder);
  write_file(folder / "config.json", "{}");
}

}  // namespace

TEST_CASE("the built-in model is found from an installed and from a built program", "[cpu][cli]") {
  const TempDir folder;
  const fs::path source = folder / "configs/models/ingot-tiny";
  make_model(source);
  CHECK(value_or_throw(find_builtin_model(folder / "build-address/ingot")) == source);
  const fs::path installed = folder / "share/ingot/models/ingot-tiny";
  make_model(installed);
  CHECK(value_or_throw(find_builtin_model(folder / "bin/ingot")) == installed);
}

TEST_CASE("a built-in model that is not there is reported with the places looked at",
          "[cpu][cli]") {
  const TempDir folder;
  // A folder without a config.json is no model.
  fs::create_directories(folder / "share/ingot/models/ingot-tiny");
  const auto missing = find_builtin_model(folder / "bin/ingot");
  REQUIRE(!missing);
  CHECK(missing.error().code == ErrorCode::not_found);
  for (const fs::path& place : builtin_model_places(folder / "bin/ingot")) {
    CHECK(missing.error().message.find(place.string()) != std::string::npos);
  }
  CHECK(missing.error().message.find("--model DIR") != std::string::npos);
  const auto unknown = find_builtin_model({});
  REQUIRE(!unknown);
  CHECK(unknown.error().code == ErrorCode::not_found);
  CHECK(unknown.error().message.find("--model DIR") != std::string::npos);
}
