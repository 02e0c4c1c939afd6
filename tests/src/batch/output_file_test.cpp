#include "src/batch/output_file.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;
namespace fs = std::filesystem;

TEST_CASE("results stand in OUT.partial until they are committed", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "in", "x");
  const fs::path out = folder / "out";
  auto file = value_or_throw(OutputFile::create(out, folder / "in", false));
  value_or_throw(file.append("one\n"));
  CHECK(!fs::exists(out));
  CHECK(read_file(folder / "out.partial") == "one\n");
  value_or_throw(file.append("two\n"));
  value_or_throw(file.commit());
  CHECK(read_file(out) == "one\ntwo\n");
  CHECK(!fs::exists(folder / "out.partial"));
}

TEST_CASE("a job that did not start leaves no file", "[cpu][batch]") {
  const TempDir folder;
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", false));
  file.discard();
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("an existing output is refused, and replaced only by --force and only at the end",
          "[cpu][batch]") {
  const TempDir folder;
  const fs::path out = folder / "out";
  write_file(out, "old\n");
  const auto refused = OutputFile::create(out, folder / "in", false);
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::invalid_argument);
  CHECK(refused.error().message.find("--force") != std::string::npos);
  auto file = value_or_throw(OutputFile::create(out, folder / "in", true));
  value_or_throw(file.append("new\n"));
  CHECK(read_file(out) == "old\n");
  value_or_throw(file.commit());
  CHECK(read_file(out) == "new\n");
}

TEST_CASE("an output that appears while the job runs is not overwritten", "[cpu][batch]") {
  const TempDir folder;
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", false));
  value_or_throw(file.append("ours\n"));
  write_file(folder / "out", "theirs\n");
  CHECK(!file.commit());
  CHECK(read_file(folder / "out") == "theirs\n");
  CHECK(read_file(folder / "out.partial") == "ours\n");
}

TEST_CASE("what an interrupted run left is not overwritten without --force", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "out.partial", "answers\n");
  CHECK(!OutputFile::create(folder / "out", folder / "in", false));
  CHECK(read_file(folder / "out.partial") == "answers\n");
  CHECK(OutputFile::create(folder / "out", folder / "in", true));
}

TEST_CASE("output = input is refused by any name of the file", "[cpu][batch]") {
  const TempDir folder;
  const fs::path in = folder / "in";
  write_file(in, "precious\n");
  const fs::path name = GENERATE("same", "symlink", "hard link", "partial");
  fs::path out = in;
  if (name == "symlink") fs::create_symlink(in, out = folder / "link");
  if (name == "hard link") fs::create_hard_link(in, out = folder / "hard");
  if (name == "partial") {
    fs::rename(in, folder / "x.partial");
    out = folder / "x";
  }
  const fs::path input = name == "partial" ? folder / "x.partial" : in;
  const bool force = GENERATE(false, true);
  CHECK(!OutputFile::create(out, input, force));
  CHECK(read_file(input) == "precious\n");
}

TEST_CASE("an output that is a symbolic link is written where it points", "[cpu][batch]") {
  const TempDir folder;
  fs::create_directory(folder / "real");
  fs::create_symlink("real/target", folder / "out");
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", false));
  value_or_throw(file.append("x\n"));
  value_or_throw(file.commit());
  CHECK(fs::is_symlink(folder / "out"));
  CHECK(read_file(folder / "real/target") == "x\n");
}

TEST_CASE("a missing output folder is refused before anything starts", "[cpu][batch]") {
  const TempDir folder;
  const auto refused = OutputFile::create(folder / "no/out", folder / "in", false);
  REQUIRE(!refused);
  CHECK(exit_status(refused.error().code) == 2);
  CHECK(refused.error().message.find("No such file") != std::string::npos);
}

TEST_CASE("a folder as output is refused", "[cpu][batch]") {
  const TempDir folder;
  CHECK(!OutputFile::create(folder.path(), folder / "in", true));
}

TEST_CASE("a full device is an error of the write", "[cpu][batch]") {
  auto file = value_or_throw(OutputFile::create("/dev/full", "/dev/null", false));
  const auto written = file.append("x\n");
  REQUIRE(!written);
  CHECK(written.error().code == ErrorCode::io);
  CHECK(written.error().message.find("No space left") != std::string::npos);
}
