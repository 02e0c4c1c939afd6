#include "src/chat/input_history.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/base/atomic_publish.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::deque<std::string> reopened(const std::filesystem::path& file) {
  InputHistory history;
  value_or_throw(history.open(file, true));
  return history.entries();
}

}  // namespace

TEST_CASE("the history remembers entries of any text, for its owner alone", "[cpu][chat]") {
  const TempDir folder;
  const auto file = folder / "new/history";
  const std::deque<std::string> entries{"one", "two\nlines \\n \\", "\"\"\"中 😀\t\"\"\"", "C:\\"};
  InputHistory history;
  value_or_throw(history.open(file, false));
  for (const std::string& entry : entries)
    value_or_throw(history.add(entry));
  value_or_throw(history.add("C:\\"));  // a repetition
  value_or_throw(history.add(""));
  CHECK(reopened(file) == entries);
  struct stat info {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  REQUIRE(::stat(file.parent_path().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
}

TEST_CASE("a damaged history keeps its sound lines and is mended", "[cpu][chat]") {
  const TempDir folder;
  constexpr std::string_view kDamaged("good\n\xFF\xFE\nbad \\escape\nnul\0\n\nlast", 30);
  write_file(folder / "h", std::string(kDamaged));
  InputHistory history;
  value_or_throw(history.open(folder / "h", false));
  CHECK(history.entries() == std::deque<std::string>{"good", "last"});
  CHECK(history.damaged_lines() == 4);
  value_or_throw(history.add("more"));
  CHECK(*read_whole_file(folder / "h") == "good\nlast\nmore\n");
}

TEST_CASE("a history is bounded, and its oldest entries go", "[cpu][chat]") {
  const TempDir folder;
  std::string text;
  for (int i = 0; i < 40'000; ++i)
    text += "entry number " + std::to_string(i) + " with some more to it\n";
  write_file(folder / "h", text);
  InputHistory history;
  value_or_throw(history.open(folder / "h", false));
  CHECK(history.entries().size() <= InputHistory::kMostEntries);
  CHECK(history.entries().back() == "entry number 39999 with some more to it");
  CHECK(std::filesystem::file_size(folder / "h") <= InputHistory::kMostFileBytes);
  CHECK(reopened(folder / "h").back() == history.entries().back());
  value_or_throw(history.add(std::string(InputHistory::kMostEntryBytes + 1, 'x')));
  CHECK(reopened(folder / "h").back().starts_with("entry"));
}

TEST_CASE("a history of one line without end is brought back to its size", "[cpu][chat]") {
  const TempDir folder;
  write_file(folder / "h", "old\n" + std::string(std::size_t{3} << 20, 'x'));
  InputHistory history;
  value_or_throw(history.open(folder / "h", false));
  CHECK(history.entries().empty());
  CHECK(std::filesystem::file_size(folder / "h") == 0);
  // Or of one that is longer than any entry, with others around it.
  write_file(folder / "h", "old\n" + std::string(std::size_t{3} << 19, 'x') + "\nnew\n");
  InputHistory other;
  value_or_throw(other.open(folder / "h", false));
  CHECK(other.damaged_lines() == 1);
  CHECK(reopened(folder / "h") == std::deque<std::string>{"old", "new"});
}

TEST_CASE("a history that is no file is said, and read by nobody", "[cpu][chat]") {
  const TempDir folder;
  REQUIRE(::mkfifo((folder / "h").c_str(), 0600) == 0);
  InputHistory history;
  const auto opened = history.open(folder / "h", false);
  REQUIRE(!opened);
  CHECK(opened.error().message.find("no regular file") != std::string::npos);
  CHECK(history.add("kept in memory"));
}

TEST_CASE("two programs add to one history", "[cpu][chat]") {
  const TempDir folder;
  InputHistory one, two;
  value_or_throw(one.open(folder / "h", false));
  value_or_throw(two.open(folder / "h", false));
  value_or_throw(one.add("a"));
  value_or_throw(two.add("b"));
  value_or_throw(one.add("c"));
  CHECK(reopened(folder / "h") == std::deque<std::string>{"a", "b", "c"});
}

TEST_CASE("a history that cannot be written says so once and goes on", "[cpu][chat]") {
  const TempDir folder;
  write_file(folder / "file", "");
  InputHistory history;
  CHECK(!history.open(folder / "file/below", false));
  InputHistory other;
  value_or_throw(other.open("/proc/none/h", false));
  const auto first = other.add("one");
  REQUIRE(!first);
  CHECK(first.error().message.find("/proc/none/h") != std::string::npos);
  CHECK(other.add("two"));
  CHECK(other.entries().size() == 2);
}

TEST_CASE("a private chat reads the history and leaves it alone", "[cpu][chat]") {
  const TempDir folder;
  write_file(folder / "h", "known\n\xFF\n");
  InputHistory history;
  value_or_throw(history.open(folder / "h", true));
  CHECK(history.entries().size() == 1);
  value_or_throw(history.add("secret"));
  CHECK(*read_whole_file(folder / "h") == "known\n\xFF\n");
}

TEST_CASE("a history stays within its bounds while programs add to it", "[cpu][chat]") {
  const TempDir folder;
  const auto file = folder / "h";
  const auto lines = [&] {
    const std::string text = *read_whole_file(file);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  };
  InputHistory one, two;
  value_or_throw(one.open(file, false));
  value_or_throw(two.open(file, false));
  const bool long_ones = GENERATE(false, true);
  const std::string more = long_ones ? std::string(10'000, 'x') : "";
  const std::size_t count = long_ones ? 150 : InputHistory::kMostEntries + 100;
  for (std::size_t i = 0; i < count; ++i) {
    InputHistory& history = i % 2 == 0 ? one : two;
    value_or_throw(history.add("entry " + std::to_string(i) + more));
    if (i % 50 != 49) continue;
    REQUIRE(std::filesystem::file_size(file) <= InputHistory::kMostFileBytes);
    REQUIRE(lines() <= InputHistory::kMostEntries);
  }
  const auto left = reopened(file);
  CHECK(left.size() >= (long_ones ? 50 : InputHistory::kMostEntries / 2));
  for (std::size_t i = 0; i < left.size(); ++i)
    CHECK(left[i] == "entry " + std::to_string(count - left.size() + i) + more);
}

TEST_CASE("a history that others may read is hidden from them", "[cpu][chat]") {
  const TempDir folder;
  const auto file = folder / "h";
  write_file(file, "old\n");
  const auto mode = [&] {
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    return info.st_mode & 0777;
  };
  REQUIRE(::chmod(file.c_str(), 0644) == 0);
  InputHistory reading;
  value_or_throw(reading.open(file, true));
  CHECK(mode() == 0644);  // a private chat changes nothing
  InputHistory history;
  value_or_throw(history.open(file, false));
  CHECK(mode() == 0600);
  REQUIRE(::chmod(file.c_str(), 0664) == 0);
  value_or_throw(history.add("new"));
  CHECK(mode() == 0600);
  CHECK(*read_whole_file(file) == "old\nnew\n");
}
