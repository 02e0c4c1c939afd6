// `ingot chat`, the built program, on a terminal.
#include <csignal>

#include "tests/src/cli/chat_on_terminal.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

using Chat = ChatOnTerminal;
using std::chrono::milliseconds;

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
  chat.program.send("half a message\x01");
  CHECK(chat.program.wait_for("message"));
  chat.program.send(kCtrlC);
  CHECK(chat.program.wait_for("^C"));
  CHECK(chat.program.wait_for(kPrompt));
  CHECK(chat.program.screen().text().ends_with(">>> half a message^C\n>>>\n"));
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

TEST_CASE("a second Ctrl-C that comes as a signal leaves too", "[cpu][cli][pty]") {
  // As it does when the key is pressed while the terminal is not in the editor's modes.
  Chat chat;
  chat.program.send(kCtrlC);
  CHECK(chat.program.wait_for("Once more to leave"));
  chat.program.signal(SIGINT);
  CHECK(chat.program.wait() == 130);
}

TEST_CASE("Ctrl-C ends an answer and keeps the session", "[cpu][cli][pty]") {
  const TempDir folder;
  const auto model = endless_model(folder);
  const std::string thinking = GENERATE("none", "high");
  CAPTURE(thinking);
  Chat chat({"--thinking", thinking, "--max-tokens", "100000", "--context", "100000"}, {}, model);
  chat.program.send("hello\r");
  REQUIRE(chat.program.wait_for("\r\n"));
  // Some of the answer is there.
  REQUIRE(chat.wait_for_answer(20));
  // Any number of times does no harm.
  chat.program.send("\x03\x03");
  REQUIRE(chat.program.wait_for("\"finish_reason\": \"cancelled\""));
  REQUIRE(chat.program.wait_for(kPrompt));
  // What was there stays, and nothing of it is fed again: the next prompt adds EOS, <｜User｜>, the
  // letter, and the two that begin an answer; of thinking that is dropped nothing stays.
  CHECK(chat.enter("/stats").find("1 answer in") != std::string::npos);
  chat.program.send("x\r");
  REQUIRE(chat.program.wait_for("\r\n"));
  REQUIRE(chat.program.wait_for(thinking == "none" ? "" : "\x1b[2m"));
  REQUIRE(chat.wait_for_answer(20));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for("\"prefilled_tokens\": "));
  const std::string& out = chat.program.out();
  REQUIRE(chat.program.wait_for(kPrompt));
  const std::size_t at = out.rfind("\"prefilled_tokens\": ");
  CHECK(std::stoi(out.substr(at + 20)) <= 7);
  CHECK(chat.leave() == 0);
}

TEST_CASE("Ctrl-C ends a prompt that is being read", "[cpu][cli][pty]") {
  Chat chat({"--prefill-chunk", "16"});
  // 6000 tokens, some 400 steps.
  chat.program.send(std::string(6000, 'q') + "\r");
  REQUIRE(chat.program.wait_for("reading: "));
  CHECK(chat.program.wait_for(" of 6004 tokens"));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for("cancelled"));
  REQUIRE(chat.program.wait_for(kPrompt));
  CHECK(chat.enter("/sessions").find("   1 message, ") != std::string::npos);
  CHECK(chat.enter("/undo").find("Taken back.") != std::string::npos);
  CHECK(chat.ask("hello").at("finish_reason") == "length");
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
  const auto stats = chat.ask("");
  CHECK(stats.at("prompt_tokens") > 800);
  const auto file = chat.home / "out.jsonl";
  chat.enter("/export " + file.string());
  const std::string lines = *ingot::read_whole_file(file);
  const auto message = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  CHECK(message.at("content") == expected);
  CHECK(chat.program.out().find("is not a command") == std::string::npos);
}

TEST_CASE("a paste of 1 MiB is taken in quickly and refused for its length", "[cpu][cli][pty]") {
  Chat chat;
  std::string text;
  while (text.size() < (std::size_t{1} << 20))
    text += "some words in a line of text\n";
  const auto start = std::chrono::steady_clock::now();
  chat.program.send("\x1b[200~" + text + "\x1b[201~");
  const std::string out = chat.enter("\x1b[A\x1b[B!");  // and the keys still work
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10) * kPatience);
  CHECK(out.find("bytes, which are at least") != std::string::npos);
  CHECK(chat.ask("hello").at("prompt_tokens") == 9);
}

TEST_CASE("what is typed while an answer comes is the next input", "[cpu][cli][pty]") {
  const TempDir folder;
  Chat chat({"--max-tokens", "60"}, {}, endless_model(folder));
  chat.program.send("hello\r/tokens ab\r");
  REQUIRE(chat.program.wait_for("\"finish_reason\": \"length\""));
  CHECK(chat.program.wait_for(counted_tokens("ab")));
  CHECK(chat.leave() == 0);
}

TEST_CASE("the history comes back in the next chat", "[cpu][cli][pty]") {
  const TempDir home;
  {
    Chat chat({}, {}, tiny_model(), home.path());
    chat.enter("/tokens 中文");
    chat.enter("/tokens two");
    CHECK(chat.leave() == 0);
  }
  Chat chat({}, {}, tiny_model(), home.path());
  chat.program.send(std::string(kUp) + std::string(kUp));
  CHECK(chat.program.wait_for("/tokens 中文"));
  CHECK(chat.enter("").find(counted_tokens("中文")) != std::string::npos);
  chat.program.send("\x12two");
  CHECK(chat.program.wait_for("search: two"));
  CHECK(chat.enter("").find(counted_tokens("two")) != std::string::npos);
}

TEST_CASE("a private chat writes nothing", "[cpu][cli][pty]") {
  Chat chat({"--private"});
  chat.enter("hello");
  CHECK(chat.leave() == 0);
  CHECK(fs::is_empty(chat.home.path()));
}

TEST_CASE("a damaged history is said, used and mended", "[cpu][cli][pty]") {
  const TempDir home;
  fs::create_directories(home / "ingot");
  write_file(home / "ingot/chat_history", "/tokens good\n\xFF\xFE\n");
  Chat chat({}, {}, tiny_model(), home.path());
  CHECK(chat.program.out().find("is damaged: 1 line left out") != std::string::npos);
  chat.program.send(kUp);
  CHECK(chat.program.wait_for("/tokens good"));
  chat.program.send("\r");
  CHECK(chat.program.wait_for(counted_tokens("good")));
  CHECK(chat.history() == "/tokens good\n");
}

TEST_CASE("wide characters keep their places in every locale", "[cpu][cli][pty]") {
  const std::string locale = GENERATE("LC_ALL=C", "LC_ALL=C.UTF-8", "LC_ALL=nowhere");
  CAPTURE(locale);
  PtyOptions options;
  options.columns = 30;
  options.environment.push_back(locale);
  Chat chat({}, options);
  chat.program.send("/tokens 中👨‍👩‍👧e\xCC\x81z");
  REQUIRE(chat.program.wait_for("z"));
  chat.program.settle(milliseconds(100));
  CHECK(chat.program.screen().column() == 4 + 8 + 2 + 2 + 1 + 1);
  // Two back over the letter and its mark, then the family goes.
  chat.program.send("\x1b[D\x1b[D\x7f");
  REQUIRE(chat.program.wait_for_more(1));
  chat.program.settle(milliseconds(100));
  CHECK(chat.program.screen().column() == 4 + 8 + 2);
  CHECK(chat.program.screen().lines().back() == ">>> /tokens 中e\xCC\x81z");
  CHECK(chat.enter("").find(counted_tokens("中e\xCC\x81z")) != std::string::npos);
}

TEST_CASE("an emoji that the terminal's bytes cut is put together", "[cpu][cli][pty]") {
  Chat chat;
  for (const char byte : std::string("/tokens 😀")) {
    chat.program.send({&byte, 1});
    chat.program.settle(milliseconds(5));
  }
  CHECK(chat.enter("").find("4 tokens: ") != std::string::npos);
}

TEST_CASE("a resize while a message is written or an answer comes does no harm",
          "[cpu][cli][pty]") {
  const TempDir folder;
  Chat chat({"--max-tokens", "150"}, {}, endless_model(folder));
  chat.program.send("/tokens some words that take two rows when the window is narrow");
  REQUIRE(chat.program.wait_for("narrow"));
  chat.program.resize(40, 20);
  REQUIRE(chat.program.wait_for_more(1));
  chat.program.settle(milliseconds(150));
  CHECK(chat.program.screen().text().ends_with(
      "commands.\n>>> /tokens some words that take two row\ns when the window is narrow\n"));
  CHECK(chat.enter("").find(counted_tokens(
            "some words that take two rows when the window is narrow")) != std::string::npos);
  chat.program.send("hello\r");
  REQUIRE(chat.program.wait_for("\r\n"));
  for (const int columns : {20, 100, 33}) {
    REQUIRE(chat.program.wait_for_more(15));
    chat.program.resize(columns, 10);
  }
  REQUIRE(chat.program.wait_for("\"finish_reason\": \"length\""));
  REQUIRE(chat.program.wait_for(kPrompt));
  CHECK(chat.enter("/tokens a").find(counted_tokens("a")) != std::string::npos);
}

TEST_CASE("the editor of the environment edits a message", "[cpu][cli][pty]") {
  const TempDir folder;
  write_file(folder / "editor.sh",
             "#!/bin/sh\nprintf '%s from the editor\\nand more' \"$(cat \"$1\")\" > \"$1.new\"\nmv "
             "\"$1.new\" \"$1\"\n");
  PtyOptions options;
  options.environment.push_back("EDITOR=sh " + (folder / "editor.sh").string());
  options.environment.push_back("PATH=/usr/bin:/bin");
  Chat chat({}, options);
  chat.program.send("draft\x18\x05");
  REQUIRE(chat.program.wait_for("... and more"));
  CHECK(chat.program.screen().text().find(">>> draft from the editor\n... and more") !=
        std::string::npos);
  CHECK(chat.ask("").at("prompt_tokens") > 30);
  const std::string sent = chat.enter("/edit hello");
  CHECK(sent.find("hello from the editor\r\nand more\r\n") != std::string::npos);
  CHECK(sent.find("prompt_tokens") != std::string::npos);
  CHECK(chat.enter("/tokens").find(counted_tokens("hello from the editor\nand more")) !=
        std::string::npos);
}

TEST_CASE("a Ctrl-C in the editor is the editor's", "[cpu][cli][pty]") {
  PtyOptions options;
  options.environment.push_back("EDITOR=kill -INT $PPID; printf hello >>");
  Chat chat({}, options);
  CHECK(chat.enter("/edit").find("\"finish_reason\": \"length\"") != std::string::npos);
  chat.program.send("\x18\x05");
  REQUIRE(chat.program.wait_for(">>> hello"));
  CHECK(chat.ask("").at("finish_reason") == "length");
}

TEST_CASE("an editor that is missing or fails is a message", "[cpu][cli][pty]") {
  PtyOptions options;
  const bool missing = GENERATE(true, false);
  if (!missing) options.environment.push_back("EDITOR=false");
  Chat chat({}, options);
  const std::string out = chat.enter("/edit");
  CHECK(out.find(missing ? "set EDITOR" : "false failed with status") != std::string::npos);
  CHECK(out.find("prompt_tokens") == std::string::npos);
}

TEST_CASE("a dumb terminal gets no escape sequences", "[cpu][cli][pty]") {
  PtyOptions options;
  options.environment = {"HOME=/nonexistent", GENERATE("TERM=dumb", "TERM=")};
  Chat chat({"--thinking", "high", "--prefill-chunk", "16"}, options);
  CHECK(chat.program.echoes());
  chat.program.send("hello\n");
  REQUIRE(chat.program.wait_for("prompt_tokens"));
  REQUIRE(chat.program.wait_for(kPrompt));
  std::string lines = "\"\"\"\n";  // a terminal's own editing takes 4096 bytes a line
  for (int i = 0; i < 40; ++i)
    lines += std::string(100, 'q') + "\n";
  chat.program.send(lines + "\"\"\"\n");
  REQUIRE(chat.program.wait_for("reading: "));
  REQUIRE(chat.program.wait_for("prompt_tokens"));
  REQUIRE(chat.program.wait_for(kPrompt));
  chat.program.send("one\\\n");
  REQUIRE(chat.program.wait_for("... "));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for(kPrompt));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for("Once more"));
  chat.program.send(kCtrlC);
  CHECK(chat.program.wait() == 130);
  CHECK(chat.program.out().find('\x1b') == std::string::npos);
}

TEST_CASE("NO_COLOR takes the colours and leaves the editing", "[cpu][cli][pty]") {
  PtyOptions options;
  options.environment.push_back("NO_COLOR=1");
  Chat chat({"--thinking", "high", "--thinking-budget", "2", "--max-tokens", "8"}, options);
  chat.ask("hello");
  const std::string& out = chat.program.out();
  for (std::size_t at = out.find("\x1b["); at != std::string::npos; at = out.find("\x1b[", at + 1))
    CHECK(out[out.find_first_not_of("0123456789;?", at + 2)] != 'm');
  CHECK(chat.program.screen().bracketed_paste());
}

TEST_CASE("a plain chat on a terminal is as in a pipe", "[cpu][cli][pty]") {
  PtyProgram program(ChatOnTerminal::arguments(tiny_model(), {"--plain"}));
  program.send("hello\n");
  REQUIRE(program.wait_for("prompt_tokens"));
  program.send(kCtrlD);
  CHECK(program.wait() == 0);
  CHECK(program.out().find('\x1b') == std::string::npos);
  CHECK(program.out().find(kPrompt) == std::string::npos);
}

TEST_CASE("the wrong command is a message, and a path is none", "[cpu][cli][pty]") {
  Chat chat;
  CHECK(chat.enter("/bogus").find("/bogus is not a command") != std::string::npos);
  CHECK(chat.enter("/think low").find("\"low\"") != std::string::npos);
  CHECK(chat.ask("/etc/passwd").at("prompt_tokens") == 15);
  CHECK(chat.ask("\"\"\"/bogus\"\"\"").at("finish_reason") == "length");
  chat.program.send("/qu\t");
  CHECK(chat.program.wait_for("/quit "));
  chat.program.send("\r");
  CHECK(chat.program.wait() == 0);
}

TEST_CASE("a job that is suspended comes back with its line", "[cpu][cli][pty]") {
  // Without a shell above it there is nobody to stop for: a stop of an orphan is refused by the
  // system, and the line goes on.
  Chat chat;
  chat.program.send(
      "/tokens a\x1a"
      "b");
  REQUIRE(chat.program.wait_for("ab"));
  const std::string out = chat.enter("");
  CAPTURE(out);
  CHECK(out.find(counted_tokens("ab")) != std::string::npos);
}

TEST_CASE("a paste that never ends is left with Ctrl-C", "[cpu][cli][pty]") {
  Chat chat;
  chat.program.send("\x1b[200~lost");
  chat.program.settle(milliseconds(100));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for("Once more to leave"));
  REQUIRE(chat.program.wait_for(kPrompt));
  CHECK(chat.enter("/tokens ab").find(counted_tokens("ab")) != std::string::npos);
}
