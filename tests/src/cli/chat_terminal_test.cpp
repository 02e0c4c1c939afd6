// `ingot chat`, the built program, on a terminal.
#include <catch2/catch.hpp>
#include <csignal>

#include "runtime/base/atomic_publish.hpp"
#include "src/text/control_tokens.hpp"
#include "tests/support/pty_program.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrompt = ">>> ";
constexpr std::string_view kCtrlC = "\x03";
constexpr std::string_view kCtrlD = "\x04";
constexpr std::string_view kUp = "\x1b[A";

std::vector<std::string> chat_on(const fs::path& model, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"chat",          "--model", model,          "--device", "cpu",
                                     "--temperature", "0",       "--max-tokens", "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// A program that waits for its first message, with a home of its own.
struct Chat {
  explicit Chat(std::vector<std::string> more = {}, PtyOptions options = {})
      : program(chat_on(tiny_model(), std::move(more)), with_home(std::move(options))) {
    REQUIRE(program.wait_for(kPrompt));
  }
  PtyOptions with_home(PtyOptions options) {
    options.environment.push_back("XDG_STATE_HOME=" + home.path().string());
    return options;
  }
  /// Types a line and waits for the next prompt; returns what came in between.
  std::string enter(std::string_view line) {
    const std::size_t from = program.out().size();
    program.send(std::string(line) + "\r");
    REQUIRE(program.wait_for("\r\n"));  // the line is handed over
    REQUIRE(program.wait_for(kPrompt));
    return program.out().substr(from);
  }
  std::string history() const {
    const auto text = ingot::read_whole_file(home / "ingot/chat_history");
    return text ? *text : std::string();
  }

  TempDir home;
  PtyProgram program;
};

fs::path endless_model(const TempDir& folder) {
  write_changed_tiny_model(folder / "endless", "head.weight",
                           {control_id(ingot::control::kEos), control_id(ingot::control::kUser)},
                           0);
  return folder / "endless";
}

}  // namespace

TEST_CASE("chat on a terminal answers, edits and leaves with Ctrl-D", "[cpu][cli][pty]") {
  Chat chat;
  CHECK(chat.program.screen().bracketed_paste());
  CHECK(!chat.program.echoes());
  chat.enter("hello");
  chat.program.send(kCtrlD);
  CHECK(chat.program.wait() == 0);
  CHECK(!chat.program.screen().bracketed_paste());
  CHECK(chat.history() == "hello\n");
}

TEST_CASE("Ctrl-D deletes, and leaves only where nothing is typed", "[cpu][cli][pty]") {
  Chat chat;
  chat.program.send("/ttokens\x01\x06\x04\r");  // start, right, delete
  CHECK(chat.program.wait_for("0 tokens:"));
  CHECK(chat.program.wait_for(kPrompt));
  chat.program.send(kCtrlD);
  CHECK(chat.program.wait() == 0);
}

TEST_CASE("Ctrl-C clears the line; twice at an empty prompt it leaves", "[cpu][cli][pty]") {
  Chat chat;
  chat.program.send("half a message");
  CHECK(chat.program.wait_for("message"));
  chat.program.send(kCtrlC);
  CHECK(chat.program.wait_for("^C"));
  chat.program.send(kCtrlC);
  CHECK(chat.program.wait_for("Once more to leave"));
  // Anything else in between: it begins anew.
  chat.enter("/stats");
  chat.program.send(kCtrlC);
  CHECK(chat.program.wait_for("Once more to leave"));
  chat.program.send(kCtrlC);
  CHECK(chat.program.wait() == 130);
  CHECK(chat.history() == "/stats\n");
}

TEST_CASE("Ctrl-C ends an answer and keeps the session", "[cpu][cli][pty]") {
  const TempDir folder;
  PtyProgram program({"chat", "--model", endless_model(folder), "--device", "cpu", "--temperature",
                      "0", "--context", "100000"});
  REQUIRE(program.wait_for(kPrompt));
  program.send("hello\r");
  REQUIRE(program.wait_for("hello"));
  REQUIRE(program.wait_for("\r\n"));
  // Some of the answer is there.
  const std::size_t before = program.out().size();
  while (program.out().size() < before + 20)
    program.settle(std::chrono::milliseconds(20));
  // Any number of times does no harm.
  program.send("\x03\x03");
  REQUIRE(program.wait_for(kPrompt));
  program.send("/stats\r");
  CHECK(program.wait_for("1 answers"));
  program.send(kCtrlD);
  CHECK(program.wait() == 0);
}

TEST_CASE("a paste arrives as it is, whatever is in it", "[cpu][cli][pty]") {
  Chat chat;
  // Lines with backslashes at their ends, tabs, slashes, quotes, and all three kinds of ends.
  std::string pasted;
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    const std::string line = i % 3 == 0 ? "/\\" : i % 3 == 1 ? "\t\"\"\"" : "\"\"\"/";
    pasted += line + (i % 3 == 0 ? "\r" : i % 3 == 1 ? "\n" : "\r\n");
    expected += line + "\n";
  }
  chat.program.send("\x1b[200~" + pasted + "\x1b[201~");
  chat.program.send("\r");
  REQUIRE(chat.program.wait_for(kPrompt));
  chat.program.send("/tokens\r");
  REQUIRE(chat.program.wait_for("tokens: "));
  std::string escaped;
  for (const char c : expected)
    escaped += c == '\n' ? std::string("\\n") : c == '\\' ? std::string("\\\\") : std::string(1, c);
  REQUIRE(chat.program.wait_for(kPrompt));
  CHECK(chat.history() == escaped + "\n/tokens\n");
  CHECK(chat.program.out().find("is not a command") == std::string::npos);
}
