#include "src/chat/file_argument.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

TEST_CASE("a file is named as people bring names along from a shell", "[cpu][chat]") {
  const auto [typed, meant] = GENERATE(table<std::string, std::string>({
      {"note.txt", "note.txt"},
      {"my note.txt", "my note.txt"},
      {"\"my note.txt\"", "my note.txt"},
      {"'my note.txt'", "my note.txt"},
      {"my\\ note\\ \\(1\\).txt", "my note (1).txt"},
      {"\"a \\\"b\\\" \\c\"", "a \"b\" \\c"},
      {"'a \\ b'", "a \\ b"},
      {"~", "/home/ada"},
      {"~/a b", "/home/ada/a b"},
      {"'~/a b'", "/home/ada/a b"},
      {"~ada/x", "~ada/x"},
      {"./~", "./~"},
      {"C:\\dir", "C:\\dir"},
      {"\"", "\""},
      {"\"open", "\"open"},
      {"\"a\" \"b\"", "\"a\" \"b\""},
      {"caf\xC3\xA9\\ 1", "caf\xC3\xA9 1"},
  }));
  CAPTURE(typed);
  CHECK(file_argument(typed, "/home/ada") == meant);
}

TEST_CASE("without a home a name that begins there stays as it is", "[cpu][chat]") {
  CHECK(file_argument("~/x", {}) == "~/x");
  CHECK(with_home("~/x", {}) == "~/x");
}

TEST_CASE("a file that is called exactly so is meant first", "[cpu][chat]") {
  const TempDir folder;
  const std::string odd = folder / "my\\ file";
  CHECK(file_argument(odd, {}) == (folder / "my file").string());
  write_file(odd, "");
  CHECK(file_argument(odd, {}) == odd);
}

TEST_CASE("names of files are completed, also from home and in quotes", "[cpu][chat]") {
  const TempDir folder;
  write_file(folder / "note.txt", "");
  write_file(folder / ".hidden", "");
  std::filesystem::create_directories(folder / "notes");
  const auto completed = [&](const std::string& begun) {
    auto found = file_completions(begun, folder.path());
    std::sort(found.begin(), found.end());
    return found;
  };
  using Names = std::vector<std::string>;
  const std::string base = folder.path().string() + "/";
  CHECK(completed(base + "no") == Names{base + "note.txt", base + "notes/"});
  CHECK(completed(base + ".").size() == 1);
  CHECK(completed(base + "missing/x").empty());
  CHECK(completed("~/no") == Names{"~/note.txt", "~/notes/"});
  CHECK(completed("\"~/no") == Names{"\"~/note.txt\"", "\"~/notes/"});
  CHECK(completed("'" + base + "note.") == Names{"'" + base + "note.txt'"});
}
