#include "src/batch/merge_outputs.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "src/batch/batch_answer.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

std::string answer(std::int64_t line, const std::string& id) {
  return error_line({line, id, "some_code", "of line " + std::to_string(line)});
}

struct Merge {
  TempDir folder;
  OutputMerge merge;
  std::string text;

  Result<OutputMerge::Counts> run(const std::vector<std::string>& outputs) {
    write_file(
        folder / "in",
        "{\"custom_id\": \"a\"}\n\n{\"custom_id\": \"b\"}\nbroken\n{\"custom_id\": \"c\"}\n");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto file = folder / ("out" + std::to_string(i));
      write_file(file, outputs[i]);
      if (auto added = merge.add(file); !added) return Unexpected(added.error());
    }
    const int fd = ::open((folder / "in").c_str(), O_RDONLY);
    REQUIRE(fd >= 0);
    LineReader reader(fd, "in");
    auto counts =
        merge.write(reader, BatchFormat::jsonl, false, [&](std::string_view lines) -> Result<void> {
          text += lines;
          return {};
        });
    ::close(fd);
    return counts;
  }
};

}  // namespace

TEST_CASE("outputs of several machines become one, in the order of the input", "[cpu][batch]") {
  Merge merge;
  const auto counts =
      merge.run({answer(5, "c") + answer(1, "a"), "", answer(4, "?") + answer(3, "b")});
  REQUIRE(counts);
  CHECK(counts->lines == 4);
  CHECK(counts->failed == 4);
  CHECK(merge.text == answer(1, "a") + answer(3, "b") + answer(4, "?") + answer(5, "c"));
}

TEST_CASE("what is missing, twice there or of another input is named", "[cpu][batch]") {
  const auto refused = [](const std::vector<std::string>& outputs, std::string_view why) {
    Merge merge;
    const auto counts = merge.run(outputs);
    REQUIRE(!counts);
    CAPTURE(counts.error().message);
    CHECK(counts.error().code == ErrorCode::corrupt);
    CHECK(counts.error().message.find(why) != std::string::npos);
    CHECK(merge.text.empty());
  };
  const std::string all = answer(1, "a") + answer(3, "b") + answer(4, "?") + answer(5, "c");
  refused({answer(1, "a") + answer(4, "?")}, "2 lines have no answer (3, 5)");
  refused({all, answer(3, "b")}, "1 answers are there twice (3)");
  refused({all + answer(9, "z") + answer(2, "y")},
          "2 answers are to lines that the input has not (2, 9)");
  refused({answer(1, "a") + answer(3, "x") + answer(4, "?") + answer(5, "c")},
          "1 answers have another custom_id than their line (3)");
  refused({"an answer alone\n"}, "line 1 is no answer");
}

TEST_CASE("custom_ids that several shards answered are told of", "[cpu][batch]") {
  const TempDir folder;
  const auto good = [](std::int64_t line, const std::string& id) {
    return R"({"id": "batch_req_)" + std::to_string(line) + R"(", "custom_id": ")" + id +
           R"(", "response": {}, "error": null})" + "\n";
  };
  std::string input;
  for (const char* id : {"a", "b", "a", "b", "c"})
    input += "{\"custom_id\": \"" + std::string(id) + "\"}\n";
  write_file(folder / "in", input);
  write_file(folder / "one", good(1, "a") + answer(3, "a") + good(5, "c"));
  write_file(folder / "two", good(2, "b") + good(4, "b"));
  OutputMerge merge;
  value_or_throw(merge.add(folder / "one"));
  value_or_throw(merge.add(folder / "two"));
  const FileDescriptor in(::open((folder / "in").c_str(), O_RDONLY));
  LineReader reader(in.get(), "in");
  const auto counts = value_or_throw(merge.write(
      reader, BatchFormat::jsonl, false, [](std::string_view) -> Result<void> { return {}; }));
  CHECK(counts.lines == 5);
  CHECK(counts.repeated == "1 answers are to a custom_id that an earlier line has (4)");
}
