// `ingot chat`, the built program, in a pipe.
#include <catch2/catch.hpp>

#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;

namespace {

ProgramResult chat(std::string_view input, std::vector<std::string> more = {},
                   ProgramOptions options = {}) {
  std::vector<std::string> arguments{"chat",          "--model", tiny_model(),   "--device", "cpu",
                                     "--temperature", "0",       "--max-tokens", "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  options.input = input;
  return run_ingot(arguments, options);
}

}  // namespace

TEST_CASE("chat in a pipe ends with its input", "[cpu][cli]") {
  const auto nothing = chat("");
  CHECK(nothing.status == 0);
  CHECK(nothing.out.empty());
  CHECK(nothing.err.empty());
  CHECK(chat("\n \n").out.empty());
}

TEST_CASE("chat answers each piped line, the last one without a newline too", "[cpu][cli]") {
  const auto two = chat("hello\nagain\n", {"--stats"});
  CHECK(two.status == 0);
  CHECK(std::count(two.out.begin(), two.out.end(), '\n') >= 2);
  CHECK(two.err.find("ingot: prompt 9 tokens (0 reused, 9 prefilled)") == 0);
  CHECK(chat("hello\nagain", {"--stats"}).out == two.out);
  // The second turn goes on from the first one's state: at least its prompt is not fed again.
  const auto second = two.err.find("\n") + 1;
  const auto reused = std::stoi(two.err.substr(two.err.find('(', second) + 1));
  CHECK(reused >= 9);
}

TEST_CASE("chat survives a line of 1 MiB", "[cpu][cli]") {
  const auto ran = chat(std::string(std::size_t{1} << 20, 'x') + "\nhello\n");
  CHECK(ran.status == 2);  // that line did not fit the context; the others are answered
  CHECK(ran.err.find("ingot: error: the prompt has 1048") == 0);
  CHECK(ran.err.find("bytes, which are at least") != std::string::npos);
  CHECK(ran.out == chat("hello\n").out);
}

TEST_CASE("chat mends a line that is not UTF-8", "[cpu][cli]") {
  const auto broken = chat("a\xFF\xC3z\n");
  CHECK(broken.status == 0);
  CHECK(broken.out == chat("a\xEF\xBF\xBD\xEF\xBF\xBDz\n").out);
  CHECK(chat(std::string_view("nul\0in it\n", 10)).status == 0);
}

TEST_CASE("special tokens that a user types are text in chat", "[cpu][cli]") {
  const auto count = [](const std::string& input) {
    const std::string err = chat(input, {"--stats"}).err;
    return std::stoi(err.substr(err.find("prompt ") + 7));
  };
  // Each byte is a token: were it a control token, it would be one.
  const int plain = count("x\n");
  CHECK(count("<think>\n") == plain + 5);  // but "th", which merges
  CHECK(count("<｜User｜>\n") == plain + 11);
}

TEST_CASE("chat --prompt answers one question and leaves", "[cpu][cli]") {
  const auto one = chat("ignored\n", {"--prompt", "hello"});
  CHECK(one.status == 0);
  CHECK(one.out == chat("hello\n").out);
}

TEST_CASE("chat commands work in a pipe", "[cpu][cli]") {
  const std::string one = chat("hello\n").out;
  CHECK(chat("hello\n/new\nhello\n").out == one + one);
  CHECK(chat("hello\n/undo\nhello\n").out == one + one);
  CHECK(chat("hello\n/quit\nhello\n").out == one);
  CHECK(chat("/help\n").out.find("/undo") != std::string::npos);
}

TEST_CASE("chat hides thinking from a pipe", "[cpu][cli]") {
  const auto ran = chat("hello\n", {"--thinking", "high", "--thinking-budget", "2", "--stats"});
  CHECK(ran.status == 0);
  CHECK(ran.err.find("thinking 3, answer 1, length") != std::string::npos);
  CHECK(ran.out.size() <= 5);
}

TEST_CASE("chat refuses an effort that the checkpoint lacks, by name", "[cpu][cli]") {
  const auto ran = chat("hello\n", {"--thinking", "low"});
  CHECK(ran.status == 2);
  CHECK(ran.err.find("\"low\"") != std::string::npos);
}

TEST_CASE("chat goes on from a conversation file and refuses one with roles out of order",
          "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "c.json", R"([{"role": "user", "content": "hello"}])");
  CHECK(chat("", {"--conversation", folder / "c.json"}).out == chat("hello\n").out);
  write_file(folder / "bad.json",
             R"([{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}])");
  const auto bad = chat("", {"--conversation", folder / "bad.json"});
  CHECK(bad.status == 2);
  CHECK(bad.err.find("bad.json") != std::string::npos);
  write_file(folder / "torn.json", R"([{"role": "user", )");
  CHECK(chat("", {"--conversation", folder / "torn.json"}).status == 2);
  CHECK(chat("", {"--conversation", folder / "missing.json"}).status == 2);
}

TEST_CASE("chat refuses a conversation that does not fit the context before the model is read",
          "[cpu][cli]") {
  const TempDir folder;
  const auto refused = [&](std::size_t bytes, std::string_view word) {
    write_file(folder / "c.json",
               R"([{"role": "user", "content": ")" + std::string(bytes, 'x') + R"("}])");
    const auto ran = run_ingot(
        {"chat", "--model", tiny_model(), "--context", "100", "--conversation", folder / "c.json"});
    CAPTURE(ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.err.find("ingot: error: reading " + (folder / "c.json").string()) == 0);
    CHECK(ran.err.find(word) != std::string::npos);
    CHECK(ran.err.find("--context") != std::string::npos);
    CHECK(ran.out.empty());
  };
  refused(100'000, "100041 bytes, which are at least");
  refused(200, "the prompt has 202 tokens, but the context holds 100");
  write_file(folder / "c.json",
             R"([{"role": "user", "content": ")" + std::string(50, 'x') + R"("}])");
  CHECK(chat("", {"--context", "100", "--conversation", folder / "c.json"}).status == 0);
}

TEST_CASE("chat whose reader has gone leaves without a word", "[cpu][cli]") {
  ProgramOptions options;
  options.close_output = true;
  const auto ran = chat("hello\n", {}, options);
  CHECK(ran.status == 141);
  CHECK(ran.err.empty());
}
