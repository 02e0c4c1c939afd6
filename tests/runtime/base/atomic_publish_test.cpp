#include "runtime/base/atomic_publish.hpp"

#include <barrier>
#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "tests/support/temp_dir.hpp"

using namespace ingot;

namespace {

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("a published file is whole, replaces the old one and leaves nothing beside it",
          "[cpu][base]") {
  const test::TempDir folder;
  const auto file = folder / "a/b/file";
  REQUIRE(publish_file(file, "first"));
  REQUIRE(publish_file(file, std::string(100000, 'x')));
  CHECK(*read_whole_file(file) == std::string(100000, 'x'));
  CHECK(files_in(folder / "a/b") == 1);
}

TEST_CASE("publishing where a folder or file is in the way fails and leaves nothing behind",
          "[cpu][base]") {
  const test::TempDir folder;
  std::filesystem::create_directories(folder / "taken/inside");
  const auto over_folder = publish_file(folder / "taken", "x");
  REQUIRE_FALSE(over_folder);
  CHECK(over_folder.error().code == ErrorCode::io);
  CHECK_THAT(over_folder.error().message, Catch::Contains("rename"));
  CHECK(files_in(folder.path()) == 1);
  test::write_file(folder / "file", "");
  CHECK_THAT(publish_file(folder / "file/below", "x").error().message,
             Catch::Contains((folder / "file").string()));
}

TEST_CASE("publishers that find their folder missing at one instant all succeed", "[cpu][base]") {
  constexpr int kPublishers = 8;
  for (int round = 0; round < 300; ++round) {
    const test::TempDir folder;
    std::barrier start(kPublishers);
    std::vector<Result<void>> results(kPublishers);
    std::vector<std::jthread> publishers;
    for (int i = 0; i < kPublishers; ++i) {
      publishers.emplace_back([&, i] {
        const auto file = folder / "a/b" / std::to_string(i);
        start.arrive_and_wait();
        results[static_cast<std::size_t>(i)] = publish_file(file, "whole");
      });
    }
    publishers.clear();
    for (const auto& result : results)
      REQUIRE(result);
    REQUIRE(files_in(folder / "a/b") == kPublishers);
  }
}

TEST_CASE("reading what is not there is told from what cannot be read", "[cpu][base]") {
  const test::TempDir folder;
  CHECK(read_whole_file(folder / "absent").error().code == ErrorCode::not_found);
  CHECK(read_whole_file(folder / "absent/deeper").error().code == ErrorCode::not_found);
  CHECK(read_whole_file(folder.path()).error().code == ErrorCode::io);
  test::write_file(folder / "empty", "");
  CHECK(*read_whole_file(folder / "empty") == "");
}

TEST_CASE("leftovers of dead publishers are swept when they are old", "[cpu][base]") {
  const test::TempDir folder;
  const auto leftover = folder / ".publish-0123";
  test::write_file(leftover, "half");
  test::write_file(folder / "published", "whole");
  CHECK(is_temporary_name(".publish-0123"));
  CHECK_FALSE(is_temporary_name("published"));
  CHECK(sweep_temporaries(folder.path(), std::chrono::hours(1)) == 0);
  std::filesystem::last_write_time(
      leftover, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  CHECK(sweep_temporaries(folder.path(), std::chrono::hours(1)) == 1);
  CHECK(std::filesystem::exists(folder / "published"));
  CHECK(sweep_temporaries(folder / "absent", std::chrono::hours(1)) == 0);
}
