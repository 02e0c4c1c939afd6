#include "src/batch/earlier_output.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "runtime/base/file_descriptor.hpp"
#include "src/batch/line_template.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
using namespace ingot::test;

namespace {

/// A line of the input; what is in its body does not matter here.
std::string asked(std::string_view id) {
  return fmt::format("{{\"custom_id\": \"{}\", \"body\": {{}}}}\n", id);
}
std::string answer(std::int64_t line, std::string_view id) {
  return fmt::format(
      "{{\"id\": \"batch_req_{}\", \"custom_id\": \"{}\", \"response\": {{}}, \"error\": null}}\n",
      line, id);
}
std::string failure(std::int64_t line, std::optional<std::string> id,
                    std::string_view code = "invalid_request") {
  return error_line({line, std::move(id), std::string(code), "why"});
}

struct Comparison {
  InputReading reading{"in.jsonl"};
  bool retry_failed = false;

  Result<DoneLines> run(const std::string& input, const std::string& output) const {
    const TempDir folder;
    write_file(folder / "in", input);
    write_file(folder / "out", output);
    const FileDescriptor in(::open((folder / "in").c_str(), O_RDONLY));
    const FileDescriptor out(::open((folder / "out").c_str(), O_RDONLY));
    EarlierOutput earlier(folder / "out", retry_failed);
    if (auto read = earlier.read(out.get()); !read) return Unexpected(read.error());
    LineReader reader(in.get(), "in");
    return earlier.compare(out.get(), reader, reading);
  }

  void refuses(const std::string& input, const std::string& output,
               const std::vector<std::string>& why) const {
    const auto compared = run(input, output);
    REQUIRE(!compared);
    const std::string& message = compared.error().message;
    CAPTURE(message);
    CHECK(exit_status(compared.error().code) == 2);
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.find("/out: ") != std::string::npos);
    CHECK(message.find("Nothing was changed") != std::string::npos);
    for (const std::string& part : why)
      CHECK(message.find(part) != std::string::npos);
  }
};

}  // namespace

TEST_CASE("an output of this input is gone on with, and its lines are known", "[cpu][batch]") {
  const std::string input = asked("a") + "\n" + asked("b") + "broken\n" + asked("a") + asked("c");
  const auto done = Comparison().run(
      input, failure(5, "a", kDuplicateId) + answer(1, "a") + failure(4, std::nullopt));
  REQUIRE(done);
  CHECK(done->last() == 5);
  for (const std::int64_t line : {1, 4, 5})
    CHECK(done->has(line));
  for (const std::int64_t line : {0, 2, 3, 6})
    CHECK(!done->has(line));
  CHECK(!done->failed(1));
  CHECK(done->failed(4));
  CHECK(done->failed(5));
}

TEST_CASE("a repeated line that is not dealt with is known as one", "[cpu][batch]") {
  const auto done = Comparison().run(asked("a") + asked("a") + asked("b"), answer(3, "b"));
  REQUIRE(done);
  CHECK(!done->repeated(1));
  CHECK(done->repeated(2));
  CHECK(!done->repeated(3));
}

TEST_CASE("an output of another input is refused by its line, its custom_id and what to do",
          "[cpu][batch]") {
  const std::string input = asked("a") + asked("b");
  const Comparison comparison;
  comparison.refuses(input, answer(1, "a") + answer(2, "x"),
                     {"its line 2 ", "line 2 of the input", "custom_id \"x\"",
                      "has custom_id \"b\" in in.jsonl", "--input", "move the file away"});
  comparison.refuses(input, answer(3, "c"), {"custom_id \"c\"", "in.jsonl has 2 lines", "--input"});
  comparison.refuses(asked("a") + " \n", answer(2, "b"), {"custom_id \"b\"", "blank"});
  // The same custom_id on another line: a run in one piece would not have named that line.
  comparison.refuses("\n" + input, answer(1, "a"), {"custom_id \"a\"", "blank"});
  comparison.refuses(asked("new") + input, answer(1, "a"), {"has custom_id \"new\""});
  comparison.refuses("broken\n", answer(1, "a"), {"has no custom_id"});
}

TEST_CASE("an output of another shard is refused", "[cpu][batch]") {
  Comparison comparison;
  comparison.reading.shard = {2, 3};
  const std::string input = asked("a") + asked("b") + asked("c") + asked("d") + asked("e");
  CHECK(comparison.run(input, answer(5, "e") + answer(2, "b")));
  comparison.refuses(input, answer(2, "b") + answer(3, "c"),
                     {"its line 2 ", "custom_id \"c\"", "--shard 2/3"});
  comparison.retry_failed = GENERATE(false, true);
  comparison.refuses(input, failure(1, "a"), {"custom_id \"a\"", "--shard 2/3"});
}

TEST_CASE("a line that is answered twice is refused", "[cpu][batch]") {
  const Comparison comparison;
  const std::string input = asked("a") + asked("b") + asked("a");
  comparison.refuses(
      input, answer(1, "a") + answer(2, "b") + answer(1, "a"),
      {"its line 3 ", "line 1 of the input", "custom_id \"a\"", "as its line 1 does"});
  comparison.refuses(input, failure(1, "a") + answer(1, "a"), {"as its line 1 does"});
  // The third line fails for its custom_id, and so must its answer.
  comparison.refuses(input, answer(1, "a") + answer(3, "a"),
                     {"its line 2 ", "custom_id \"a\"", "which an earlier line of in.jsonl has"});
  comparison.refuses(input, failure(3, "a"), {"which an earlier line of in.jsonl has"});
  CHECK(comparison.run(input, answer(1, "a") + failure(3, "a", kDuplicateId)));
  comparison.refuses(input, failure(2, "b", kDuplicateId), {"--retry-failed"});
}

TEST_CASE("lines that failed are mended before they are answered again", "[cpu][batch]") {
  Comparison comparison;
  const std::string input = asked("a") + asked("b2") + "\n" + asked("d");
  const std::string output =
      failure(1, std::nullopt) + failure(2, "b", kDuplicateId) + failure(3, "c") + answer(4, "d");
  comparison.refuses(input, output, {"its line 1 ", "no custom_id", "--retry-failed"});
  // Whatever it failed for: a custom_id that an earlier line has, or one that was too long.
  comparison.refuses(input, failure(2, "b", kDuplicateId),
                     {"its line 1 ", "custom_id \"b\"", "has custom_id \"b2\"", "--retry-failed"});
  comparison.refuses(asked("a") + asked("a"), failure(2, "a"),
                     {"which an earlier line of in.jsonl has", "--retry-failed"});
  comparison.retry_failed = true;
  const auto done = comparison.run(input, output);
  REQUIRE(done);
  CHECK(!done->has(1));
  CHECK(!done->has(2));
  CHECK(!done->has(3));
  CHECK(done->has(4));
  comparison.refuses(input, failure(5, "e"), {"has 4 lines"});
}

TEST_CASE("answers to lines of plain text are known by their number", "[cpu][batch]") {
  Comparison comparison;
  comparison.reading.format = BatchFormat::text;
  CHECK(comparison.run("one\n\n{\"custom_id\": \"a\"}\n", answer(3, "line-3")));
  comparison.refuses("one\n", answer(1, "a"), {"custom_id \"a\"", "has custom_id \"line-1\""});
  comparison.refuses("one\n", answer(2, "line-2"), {"has 1 lines"});
}

TEST_CASE("answers to lines that fill a template are known by the names of these", "[cpu][batch]") {
  Comparison comparison;
  comparison.reading.fills_template = true;
  const std::string input =
      "{\"id\": 7}\n{}\n{\"id\": \"x\", \"custom_id\": \"y\"}\n{\"custom_id\": \"" +
      std::string(600, 'z') + "\", \"id\": \"short\"}\n";
  CHECK(comparison.run(input,
                       answer(1, "7") + answer(2, "line-2") + answer(3, "y") + answer(4, "short")));
  comparison.refuses(input, answer(1, "line-1"), {"has custom_id \"7\""});
  comparison.refuses(input, answer(3, "x"), {"has custom_id \"y\""});
}

TEST_CASE("what an answer is known by is what the line's answer says, whatever the line",
          "[cpu][batch]") {
  const std::string long_id(513, 'i');
  for (const std::string& text : std::vector<std::string>{
           "", "null", "[1]", "7", "broken", "{}", "{\"custom_id\": 7}", "{\"custom_id\": null}",
           "{\"custom_id\": \"\"}", "{\"custom_id\": \"a\"}",
           "{\"custom_id\": \"" + long_id + "\"}", "{\"custom_id\": \"a\", \"custom_id\": \"b\"}",
           "{\"id\": \"a\"}", "{\"id\": {}}", "{\"custom_id\": \"\\u4e2d\\ud800\"}",
           asked("q").substr(0, asked("q").size() - 1)}) {
    CAPTURE(text);
    const InputLine line{3, text, false};
    const BatchDefaults defaults;
    const auto id_of = [](const BatchResult<BatchRequest>& request) {
      return request ? std::optional(request->custom_id) : request.error().custom_id;
    };
    const auto templ = value_or_throw(
        LineTemplate::parse(R"([{"role": "user", "content": "{{x}}"}])", "template"));
    CHECK(custom_id_of(line, BatchFormat::jsonl, false) == id_of(parse_batch_line(line, defaults)));
    CHECK(custom_id_of(line, BatchFormat::jsonl, true) ==
          id_of(parse_template_line(line, defaults, templ)));
    CHECK(custom_id_of(line, BatchFormat::text, false) == id_of(parse_text_line(line, defaults)));
  }
  const InputLine too_long{3, "", true};
  CHECK(!custom_id_of(too_long, BatchFormat::text, false));
  CHECK(!custom_id_of(too_long, BatchFormat::jsonl, true));
}

TEST_CASE("what is no answer of this command is refused by its line", "[cpu][batch]") {
  const auto compared = Comparison().run(asked("a"), answer(1, "a") + "notes\n");
  REQUIRE(!compared);
  CHECK(compared.error().message.find("line 2 is no answer") != std::string::npos);
}

TEST_CASE("an end that was torn goes, and one that is no beginning of an answer is refused",
          "[cpu][batch]") {
  const std::string whole = answer(2, "b");
  for (const std::string& before : {std::string(), answer(1, "a")}) {
    std::vector<std::string> torn{std::string(7, '\0'), whole.substr(0, 9) + std::string(99, '\0'),
                                  "{\"id\":\"batch_req_2\",\"cus"};
    for (std::size_t size = 0; size < whole.size(); ++size)
      torn.push_back(whole.substr(0, size));
    for (const std::string& end : torn) {
      CAPTURE(end);
      CHECK(Comparison().run(asked("a") + asked("b"), before + end));
    }
    for (const char* end : {"x", "{\"my\": 1}", "[1, 2]", "{\"id\": \"batch_2\"", "7"}) {
      CAPTURE(end);
      const auto compared = Comparison().run(asked("a") + asked("b"), before + end);
      REQUIRE(!compared);
      CHECK(compared.error().message.find(before.empty()
                                              ? "line 1 is no answer"
                                              : "line 2 is no answer") != std::string::npos);
    }
  }
}
