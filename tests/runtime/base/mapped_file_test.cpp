#include "runtime/base/mapped_file.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace ingot;

TEST_CASE("a mapped file shows its bytes and survives being moved", "[cpu][base]") {
  const test::TempDir dir;
  test::write_file(dir / "a", "some bytes");
  MappedFile first = value_or_throw(MappedFile::open(dir / "a"));
  CHECK(first.text() == "some bytes");
  first.will_need(first.bytes());
  first.not_needed(first.bytes());
  CHECK(first.text() == "some bytes");
  const char* address = first.text().data();
  MappedFile second = std::move(first);
  CHECK(second.text().data() == address);
  test::write_file(dir / "b", "other");
  MappedFile third = value_or_throw(MappedFile::open(dir / "b"));
  third = std::move(second);
  CHECK(third.text() == "some bytes");
}

TEST_CASE("an empty file maps to no bytes", "[cpu][base]") {
  const test::TempDir dir;
  test::write_file(dir / "empty", "");
  const MappedFile file = value_or_throw(MappedFile::open(dir / "empty"));
  CHECK(file.bytes().empty());
  CHECK(file.text().empty());
  file.will_need(file.bytes());
  file.not_needed(file.bytes());
}

TEST_CASE("what cannot be mapped is named", "[cpu][base]") {
  const test::TempDir dir;
  const auto refused = [&](const std::filesystem::path& path, ErrorCode code) {
    const auto file = MappedFile::open(path);
    REQUIRE(!file);
    CHECK(file.error().code == code);
    CHECK(file.error().message.find(path.string()) != std::string::npos);
  };
  refused(dir / "absent", ErrorCode::not_found);
  refused(dir / "absent/below", ErrorCode::not_found);
  refused(dir.path(), ErrorCode::invalid_argument);
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  refused(dir / "pipe", ErrorCode::invalid_argument);
  std::filesystem::create_symlink("loop", dir / "loop");
  refused(dir / "loop", ErrorCode::not_found);
}
