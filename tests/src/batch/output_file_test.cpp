#include "src/batch/output_file.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

constexpr auto kRefuse = OutputFile::Existing::refuse;
constexpr auto kReplace = OutputFile::Existing::replace;
constexpr auto kResume = OutputFile::Existing::resume;

/// Lines are numbers, and stand for the line of the input of that number; 0 goes.
Result<std::int64_t> number_of(std::string_view line, std::int64_t) {
  return std::stoll(std::string(line));
}

}  // namespace

TEST_CASE("a torn end goes when a run is gone on with", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "in", "x");
  const std::string torn =
      GENERATE("", "4", "400000", std::string(3, '\0'), std::string(2'000'000, 'x'));
  write_file(folder / "out.partial", "1\n2\n3\n" + torn);
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
  value_or_throw(file.recover(number_of));
  CHECK(read_file(folder / "out.partial") == "1\n2\n3\n");
  value_or_throw(file.append("4\n"));
  value_or_throw(file.commit());
  CHECK(read_file(folder / "out") == "1\n2\n3\n4\n");
}

TEST_CASE("lines that are refused go, and the others stay in one piece", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "in", "x");
  write_file(folder / "out.partial", "0\n1\n0\n2\n0\n3");
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
  value_or_throw(file.recover(number_of));
  CHECK(read_file(folder / "out.partial") == "1\n2\n");
  CHECK(!OutputFile::create(folder / "out", folder / "in", kResume));  // it is still ours
  value_or_throw(file.append("3\n"));
  value_or_throw(file.commit());
  CHECK(read_file(folder / "out") == "1\n2\n3\n");
  CHECK(!fs::exists(folder / "out.partial.new"));
}

TEST_CASE("a finished output is gone on with, and is whole again at the end", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "in", "x");
  write_file(folder / "out", "1\n");
  {
    auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
    value_or_throw(file.recover(number_of));
    CHECK(!fs::exists(folder / "out"));
    value_or_throw(file.append("2\n"));
  }
  CHECK(read_file(folder / "out.partial") == "1\n2\n");
  write_file(folder / "out", "other");
  const auto both = OutputFile::create(folder / "out", folder / "in", kResume);
  REQUIRE(!both);
  CHECK(both.error().message.find("both it and out.partial exist") != std::string::npos);
  CHECK(!OutputFile::create("-", folder / "in", kResume));
  CHECK(!OutputFile::create("/dev/null", folder / "in", kResume));
}

TEST_CASE("a run that is gone on with for the first time begins", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "in", "x");
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
  value_or_throw(file.recover(number_of));
  value_or_throw(file.append("1\n"));
  value_or_throw(file.commit());
  CHECK(read_file(folder / "out") == "1\n");
}

TEST_CASE("lines that were written as they finished are put in order at the end", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "in", "x");
  write_file(folder / "out.partial", "7\n3\n");
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
  file.remember_lines();
  value_or_throw(file.recover(number_of));
  for (const std::int64_t line : {9, 1, 4}) {
    const std::string text = std::to_string(line) + "\n";
    value_or_throw(file.append(text));
    file.note_line(line, text.size());
  }
  CHECK(read_file(folder / "out.partial") == "7\n3\n9\n1\n4\n");
  value_or_throw(file.commit());
  CHECK(read_file(folder / "out") == "1\n3\n4\n7\n9\n");
}

TEST_CASE("lines that could not be put in order are so at the next attempt", "[cpu][batch]") {
  const TempDir folder;
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse));
  file.remember_lines();
  for (const std::int64_t line : {2, 3, 1}) {
    value_or_throw(file.append(std::to_string(line) + "\n"));
    file.note_line(line, 2);
  }
  fs::create_directory(folder / "out.partial.new");
  CHECK(!file.commit());
  CHECK(!fs::exists(folder / "out"));
  CHECK(read_file(folder / "out.partial") == "2\n3\n1\n");
  fs::remove(folder / "out.partial.new");
  value_or_throw(file.commit());
  CHECK(read_file(folder / "out") == "1\n2\n3\n");
}

TEST_CASE("what a run left that was killed while it rewrote the lines goes", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "out.partial", "1\n2\n");
  write_file(folder / "out.partial.new", "1");
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
  value_or_throw(file.recover(number_of));
  value_or_throw(file.commit());
  CHECK(read_file(folder / "out") == "1\n2\n");
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a folder in the place of OUT.partial is named", "[cpu][batch]") {
  const TempDir folder;
  fs::create_directory(folder / "out.partial");
  const auto refused =
      OutputFile::check(folder / "out", folder / "in", GENERATE(kRefuse, kReplace, kResume));
  REQUIRE(!refused);
  CHECK(refused.error().message.find("out.partial: this is a folder") != std::string::npos);
}

TEST_CASE("results stand in OUT.partial until they are committed", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "in", "x");
  const fs::path out = folder / "out";
  auto file = value_or_throw(OutputFile::create(out, folder / "in", kRefuse));
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
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse));
  file.discard();
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a job that wrote nothing leaves no file, and a look at the output changes none",
          "[cpu][batch]") {
  const TempDir folder;
  { const auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse)); }
  CHECK(fs::is_empty(folder.path()));
  CHECK(OutputFile::check(folder / "out", folder / "in", kRefuse));
  CHECK(!OutputFile::check("", folder / "in", kRefuse));
  CHECK(!OutputFile::check(folder / "no/out", folder / "in", kRefuse));
  CHECK(!OutputFile::check(folder / std::string(300, 'x'), folder / "in", kRefuse));
  CHECK(fs::is_empty(folder.path()));
  write_file(folder / "out.partial", "kept");
  CHECK(!OutputFile::check(folder / "out", folder / "in", kRefuse));
  CHECK(OutputFile::check(folder / "out", folder / "in", kReplace));
  CHECK(read_file(folder / "out.partial") == "kept");
}

TEST_CASE("an existing output is refused, and replaced only by --force and only at the end",
          "[cpu][batch]") {
  const TempDir folder;
  const fs::path out = folder / "out";
  write_file(out, "old\n");
  const auto refused = OutputFile::create(out, folder / "in", kRefuse);
  REQUIRE(!refused);
  CHECK(refused.error().code == ErrorCode::invalid_argument);
  CHECK(refused.error().message.find("--force") != std::string::npos);
  auto file = value_or_throw(OutputFile::create(out, folder / "in", kReplace));
  value_or_throw(file.append("new\n"));
  CHECK(read_file(out) == "old\n");
  value_or_throw(file.commit());
  CHECK(read_file(out) == "new\n");
}

TEST_CASE("a job that cannot be gone on with is told what helps, which is not --resume",
          "[cpu][batch]") {
  const TempDir folder;
  const bool finished = GENERATE(false, true);
  const fs::path there = folder / (finished ? "out" : "out.partial");
  write_file(there, "old\n");
  const auto message = [&](OutputFile::Existing existing) {
    const auto refused = OutputFile::create(folder / "out", folder / "in", existing);
    REQUIRE(!refused);
    CHECK(OutputFile::check(folder / "out", folder / "in", existing).error().message ==
          refused.error().message);
    CHECK(refused.error().message.find(there.string() + ": it exists") != std::string::npos);
    CHECK(refused.error().message.find("--force") != std::string::npos);
    return refused.error().message;
  };
  CHECK(message(kRefuse).find("--resume") != std::string::npos);
  const std::string alone = message(OutputFile::Existing::refuse_alone);
  CHECK(alone.find("--resume") == std::string::npos);
  CHECK(alone.find("name another output") != std::string::npos);
  CHECK(read_file(there) == "old\n");
}

TEST_CASE("an output that appears while the job runs is not overwritten", "[cpu][batch]") {
  const TempDir folder;
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse));
  value_or_throw(file.append("ours\n"));
  write_file(folder / "out", "theirs\n");
  CHECK(!file.commit());
  CHECK(read_file(folder / "out") == "theirs\n");
  CHECK(read_file(folder / "out.partial") == "ours\n");
}

TEST_CASE("what an interrupted run left is not overwritten without --force", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "out.partial", "answers\n");
  CHECK(!OutputFile::create(folder / "out", folder / "in", kRefuse));
  CHECK(read_file(folder / "out.partial") == "answers\n");
  CHECK(OutputFile::create(folder / "out", folder / "in", kReplace));
}

TEST_CASE("an empty partial file of a run that was killed is no obstacle", "[cpu][batch]") {
  const TempDir folder;
  write_file(folder / "out.partial", "");
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse));
  value_or_throw(file.append("x\n"));
  value_or_throw(file.commit());
  CHECK(read_file(folder / "out") == "x\n");
}

TEST_CASE("two runs never write one output", "[cpu][batch]") {
  const TempDir folder;
  auto first = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse));
  const bool force = GENERATE(false, true);
  const auto second = OutputFile::create(folder / "out", folder / "in", force ? kReplace : kRefuse);
  REQUIRE(!second);
  CHECK(second.error().message.find("another run is writing it") != std::string::npos);
  value_or_throw(first.append("x\n"));
  value_or_throw(first.commit());
  CHECK(read_file(folder / "out") == "x\n");
}

TEST_CASE("an output that another run is writing is refused before anything is loaded",
          "[cpu][batch]") {
  const TempDir folder;
  const auto first = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse));
  const auto second =
      OutputFile::check(folder / "out", folder / "in", GENERATE(kRefuse, kReplace, kResume));
  REQUIRE(!second);
  CHECK(second.error().message.find("another run is writing it") != std::string::npos);
}

TEST_CASE("an output that was written since it was looked at is noticed", "[cpu][batch]") {
  const TempDir folder;
  const std::string left = GENERATE("out", "out.partial");
  write_file(folder / left, "1\n");
  CHECK(OutputFile::left(folder / "out") == folder / left);
  struct stat looked_at {};
  REQUIRE(::stat((folder / left).c_str(), &looked_at) == 0);
  {
    const auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
    CHECK(file.is_unchanged(looked_at));
  }
  write_file(folder / "out.partial", "1\n2\n");
  const auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kResume));
  CHECK(!file.is_unchanged(looked_at));
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
  CHECK(!OutputFile::create(out, input, force ? kReplace : kRefuse));
  CHECK(read_file(input) == "precious\n");
}

TEST_CASE("an output that is a symbolic link is written where it points", "[cpu][batch]") {
  const TempDir folder;
  fs::create_directory(folder / "real");
  fs::create_symlink("real/target", folder / "out");
  auto file = value_or_throw(OutputFile::create(folder / "out", folder / "in", kRefuse));
  value_or_throw(file.append("x\n"));
  value_or_throw(file.commit());
  CHECK(fs::is_symlink(folder / "out"));
  CHECK(read_file(folder / "real/target") == "x\n");
}

TEST_CASE("a missing output folder is refused before anything starts", "[cpu][batch]") {
  const TempDir folder;
  const auto refused = OutputFile::create(folder / "no/out", folder / "in", kRefuse);
  REQUIRE(!refused);
  CHECK(exit_status(refused.error().code) == 2);
  CHECK(refused.error().message.find("No such file") != std::string::npos);
}

TEST_CASE("a folder as output is refused", "[cpu][batch]") {
  const TempDir folder;
  CHECK(!OutputFile::create(folder.path(), folder / "in", kReplace));
}

TEST_CASE("a full device is an error of the write", "[cpu][batch]") {
  auto file = value_or_throw(OutputFile::create("/dev/full", "/dev/null", kRefuse));
  const auto written = file.append("x\n");
  REQUIRE(!written);
  CHECK(written.error().code == ErrorCode::io);
  CHECK(written.error().message.find("No space left") != std::string::npos);
}
