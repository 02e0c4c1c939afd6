// `ingot chat` over an engine that answers by a script: what it shows and what it does with it.
#include <fmt/core.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <thread>

#include "tests/src/cli/chat_on_terminal.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ingot::test;

namespace {

/// Built beside the program.
std::string scripted_program() {
  return std::filesystem::path(ingot_program()).parent_path() / "tests/src/cli/scripted_chat";
}

constexpr std::string_view kCall =
    "Let me see.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n"
    "<｜DSML｜parameter name=\"city\" string=\"true\">Köln</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "weather", "parameters": {}}}])";

struct Scripted {
  explicit Scripted(std::vector<std::string_view> answers, int step_ms = 0, int preparations = 0,
                    int prepare_ms = 0) {
    std::string script = fmt::format("{} {} {}", step_ms, preparations, prepare_ms);
    for (const std::string_view answer : answers)
      script += "\n---\n" + std::string(answer);
    write_file(folder / "script", script);
    write_file(folder / "tools.json", std::string(kTools));
  }
  std::vector<std::string> arguments(std::vector<std::string> more) const {
    std::vector<std::string> out{folder / "script", "chat", "--temperature", "0"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  ProgramResult pipe(std::string_view input, std::vector<std::string> more = {},
                     bool at_home = false) const {
    ProgramOptions options;
    if (at_home) options.environment[0] = "HOME=" + folder.path().string();
    options.program = scripted_program();
    options.input = input;
    options.environment.push_back("PATH=/usr/bin:/bin");
    options.working_directory = folder.path();
    return run_ingot(arguments(std::move(more)), options);
  }
  std::unique_ptr<PtyProgram> terminal(std::vector<std::string> more = {},
                                       PtyOptions options = {}) const {
    options.program = scripted_program();
    options.environment.push_back("XDG_STATE_HOME=" + (folder / "state").string());
    options.environment.push_back("PATH=/usr/bin:/bin");
    auto program = std::make_unique<PtyProgram>(arguments(std::move(more)), options);
    REQUIRE(program->wait_for(kPrompt));
    return program;
  }

  TempDir folder;
};

/// Types a line and waits for the next prompt.
void enter(PtyProgram& program, std::string_view line) {
  program.send(std::string(line) + "\r");
  REQUIRE(program.wait_for("\r\n"));
  REQUIRE(program.wait_for(kPrompt));
}

}  // namespace

TEST_CASE("characters that several tokens make up arrive whole", "[cpu][cli][pty]") {
  const Scripted script({"a😀👨‍👩‍👧中"});
  CHECK(script.pipe("hi\n").out == "a😀👨‍👩‍👧中\n");
  const auto program = script.terminal({"--stats"});
  enter(*program, "hi");
  CHECK(program->out().find("\na😀👨‍👩‍👧中\r\n") != std::string::npos);
  // Cut inside of the emoji: its half is mended, and nothing of the answer is fed again.
  const auto cut = script.pipe("hi\nmore\n", {"--max-tokens", "3", "--stats"});
  CHECK(cut.out == "a\xEF\xBF\xBD\na\xEF\xBF\xBD\n");
  CHECK(cut.err.find("\"prefilled_tokens\": 9,") != std::string::npos);
}

TEST_CASE("a stop string that several tokens make up ends the answer unseen", "[cpu][cli]") {
  const Scripted script({"one STOP two"});
  const auto ran = script.pipe("hi\nhi\n", {"--stop", " STOP", "--stats"});
  CHECK(ran.out == "one\none\n");
  CHECK(ran.err.find("\"finish_reason\": \"stop\"") != std::string::npos);
  // What only begins like it is shown.
  CHECK(script.pipe("hi\n", {"--stop", "STOPPED"}).out == "one STOP two\n");
}

TEST_CASE("thinking is dim, folds with Ctrl-T and unfolds", "[cpu][cli][pty]") {
  std::string answer;
  for (int i = 0; i < 30; ++i)
    answer += "thought " + std::to_string(i) + "\n";
  answer += "</think>The answer.";
  const Scripted script({answer}, 3);
  const auto program = script.terminal({"--thinking", "high"});
  program->send("hi\r");
  REQUIRE(program->wait_for("\x1b[2m"));
  REQUIRE(program->wait_for("thought 3"));
  program->send("\x14");
  REQUIRE(program->wait_for("thinking, "));
  REQUIRE(program->wait_for("(thought for 320 characters; Ctrl-T shows it)"));
  REQUIRE(program->wait_for("The answer."));
  REQUIRE(program->wait_for(kPrompt));
  CHECK(program->screen().text().find("thought 29") == std::string::npos);
  program->send("\x14");  // at the prompt
  REQUIRE(program->wait_for("thought 29"));
  REQUIRE(program->wait_for(kPrompt));
  enter(*program, "/think show");
  program->send("hi\r");
  REQUIRE(program->wait_for("thought 29"));
  REQUIRE(program->wait_for("The answer."));
}

TEST_CASE("code has a colour on a terminal and none elsewhere", "[cpu][cli][pty]") {
  const Scripted script({"See:\n```c\nint x;\n```\ndone"});
  CHECK(script.pipe("hi\n").out == "See:\n```c\nint x;\n```\ndone\n");
  const auto program = script.terminal();
  enter(*program, "hi");
  CHECK(program->out().find("\x1b[36mint x;\x1b[0m\r\n") != std::string::npos);
  CHECK(program->screen().text().find("See:\n```c\nint x;\n```\ndone\n[prompt ") !=
        std::string::npos);
}

TEST_CASE("the model's call is shown, and the user's result answered", "[cpu][cli][pty]") {
  const Scripted script({kCall, "It rains."});
  const auto program = script.terminal({"--tool", script.folder / "tools.json"});
  program->send("hi\r");
  REQUIRE(program->wait_for("[call weather]"));
  REQUIRE(program->wait_for("city: \"Köln\""));
  REQUIRE(program->wait_for("Enter the result of weather"));
  REQUIRE(program->wait_for("result of weather> "));
  // A command is still a command.
  program->send("/stats\r");
  REQUIRE(program->wait_for("1 answer in"));
  REQUIRE(program->wait_for("result of weather> "));
  program->send("\x1b[200~{\"rain\":\n true}\x1b[201~\r");
  REQUIRE(program->wait_for("It rains."));
  REQUIRE(program->wait_for(kPrompt));
  enter(*program, "/export " + (script.folder / "talk.jsonl").string());
  const std::string lines = *ingot::read_whole_file(script.folder / "talk.jsonl");
  CHECK(lines.find(
            R"({"role": "tool", "content": "{\"rain\":\n true}", "tool_call_id": "call_1"})") !=
        std::string::npos);
  CHECK(lines.find(R"("name": "weather")") != std::string::npos);
}

TEST_CASE("a session that waits for the result of a call says so when it is gone on with",
          "[cpu][cli]") {
  const Scripted script({kCall, "sunny"});
  CHECK(script.pipe("weather?\n", {"--session", "s", "--tool", script.folder / "tools.json"}, true)
            .status == 0);
  constexpr std::string_view kCalls = "the last answer calls weather; ";
  const auto told = script.pipe("20 degrees\n", {"--session", "s"}, true);
  CHECK(told.err.find(std::string(kCalls) + "what is read next is its result") !=
        std::string::npos);
  CHECK(told.out == "sunny\n");
}

TEST_CASE("a command of the user's answers the model's calls, only when asked for", "[cpu][cli]") {
  const Scripted script({kCall, "It rains."});
  const std::vector<std::string> with_tools{"--tool", script.folder / "tools.json"};
  // In a pipe the next message is the result.
  const auto by_hand = script.pipe("hi\nrain\n", with_tools);
  CHECK(by_hand.out == "Let me see.\n[tool call] weather {\"city\": \"Köln\"}\nIt rains.\n");
  auto arguments = with_tools;
  arguments.insert(arguments.end(), {"--tool-command", "cat > call.json; echo rain", "--json"});
  const auto ran = script.pipe("hi\n", arguments);
  CHECK(ran.status == 0);
  CHECK(ran.out.find("It rains.") != std::string::npos);
  CHECK(nlohmann::json::parse(*ingot::read_whole_file(script.folder / "call.json")) ==
        nlohmann::json::parse(R"({"id": "call_1", "type": "function", "function":
          {"name": "weather", "arguments": "{\"city\": \"Köln\"}"}})"));
  arguments[3] = "exit 3";
  const auto failed = script.pipe("hi\n", arguments);
  CHECK(failed.status == 1);
  CHECK(failed.err.find("running exit 3: exit status 3") != std::string::npos);
  arguments[3] = "yes";
  CHECK(script.pipe("hi\n", arguments).err.find("more than 1024 KiB") != std::string::npos);
}

TEST_CASE("a model that calls without end is stopped, and that is no success", "[cpu][cli]") {
  const Scripted script({kCall});
  std::vector<std::string> arguments{"--tool", script.folder / "tools.json", "--tool-command",
                                     "echo rain"};
  if (GENERATE(false, true)) arguments.insert(arguments.end(), {"-p", "hi"});
  const auto ran = script.pipe("hi\nnever asked\n", arguments);
  CHECK(ran.status == 1);
  CHECK(ran.err.find("32 times in a row") != std::string::npos);
}

TEST_CASE("after a tool's command that failed, a script asks nothing more", "[cpu][cli]") {
  const Scripted script({kCall, "It rains."});
  std::vector<std::string> arguments{"--tool", script.folder / "tools.json", "--tool-command",
                                     "exit 3"};
  const bool one_shot = GENERATE(false, true);
  if (one_shot) arguments.insert(arguments.end(), {"-p", "hi"});
  // What comes next would be taken for the result.
  const auto ran = script.pipe("hi\nanother question\n", arguments);
  CHECK(ran.status == 1);
  CHECK(ran.out.find("It rains.") == std::string::npos);
  CHECK(ran.err.find("running exit 3: exit status 3") != std::string::npos);
  CHECK((ran.err.find("the script ends here") == std::string::npos) == one_shot);
}

TEST_CASE("Ctrl-C ends a tool's command and keeps the session", "[cpu][cli][pty]") {
  const Scripted script({kCall, "It rains."});
  const auto program =
      script.terminal({"--tool", script.folder / "tools.json", "--tool-command", "sleep 100"});
  program->send("hi\r");
  REQUIRE(program->wait_for("city: "));
  program->settle(std::chrono::milliseconds(200));
  program->send(kCtrlC);
  REQUIRE(program->wait_for("running sleep 100: stopped"));
  REQUIRE(program->wait_for("result of weather> "));
  program->send("rain\r");
  REQUIRE(program->wait_for("It rains."));
}

TEST_CASE("SIGTERM waits for no tool's command", "[cpu][cli][pty]") {
  const Scripted script({kCall, "It rains."});
  const auto program =
      script.terminal({"--tool", script.folder / "tools.json", "--session", "plan",
                       "--tool-command", "trap '' TERM; echo ready >&2; sleep 100"});
  program->send("hi\r");
  REQUIRE(program->wait_for("ready"));
  program->signal(SIGTERM);
  CHECK(program->wait(10) == 143);
  CHECK(std::filesystem::exists(script.folder / "state/ingot/sessions/plan.session"));
}

TEST_CASE("tools come and go in a session", "[cpu][cli]") {
  const Scripted script({"yes"});
  const auto ran = script.pipe("/tool tools.json\n/tool\n/tool none\n/tool\nhi\n");
  CHECK(ran.status == 0);
  CHECK(ran.out == "{\"name\": \"weather\", \"parameters\": {}}\nyes\n");
}

TEST_CASE("files are attached and conversations exported", "[cpu][cli]") {
  const Scripted script({"yes"});
  write_file(script.folder / "note.txt", "line ``` one\n");
  write_file(script.folder / "binary", std::string("a\0b", 3));
  write_file(script.folder / "latin", "caf\xE9");
  for (const auto& [file, why] : {std::pair{"binary", "it is no text in UTF-8 (byte 1 is not)"},
                                  std::pair{"latin", "it is no text in UTF-8 (byte 3 is not)"},
                                  std::pair{"missing", "no such file"}}) {
    const auto refused = script.pipe("/attach " + std::string(file) + "\nhi\n");
    CHECK(refused.status != 0);
    CHECK(refused.out.empty());
    CHECK(refused.err.find(file) != std::string::npos);
    CHECK(refused.err.find(why) != std::string::npos);
  }
  const auto ran = script.pipe(
      "/attach note.txt\nwhat is this?\n/attach note.txt\n/attach\nno more\n/export "
      "talk.jsonl\n/export talk.md\n/export talk.md\n/export talk.txt\n");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("talk.md: the file is there already") != std::string::npos);
  CHECK(ran.err.find("must end in .md") != std::string::npos);
  const std::string lines = *ingot::read_whole_file(script.folder / "talk.jsonl");
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  CHECK(first.at("content") == "note.txt:\n\n````\nline ``` one\n````\n\nwhat is this?");
  CHECK(lines.find("{\"role\": \"user\", \"content\": \"no more\"}") != std::string::npos);
  CHECK((*ingot::read_whole_file(script.folder / "talk.md")).find("## Assistant\n\nyes\n") !=
        std::string::npos);
}

TEST_CASE("names of files may be quoted, escaped, have blanks, and begin at home", "[cpu][cli]") {
  const Scripted script({"yes"});
  write_file(script.folder / "my note.txt", "mine");
  write_file(script.folder / "my tools.json", std::string(kTools));
  for (const char* name : {"my note.txt", "\"my note.txt\"", "'my note.txt'", "my\\ note.txt",
                           "~/my note.txt", "\"~/my note.txt\"", "~/my\\ note.txt"}) {
    CAPTURE(name);
    const auto ran = script.pipe("/attach " + std::string(name) + "\nhi\n/tokens\n", {}, true);
    CHECK(ran.status == 0);
    CHECK(ran.err.empty());
    // my note.txt:, a blank line, the fence with its text, a line's end, hi
    CHECK(
        ran.out.find("\n" +
                     std::to_string(
                         small_tokenizer().encode("my note.txt:\n\n```\nmine\n```\n\nhi").size()) +
                     " tokens: ") != std::string::npos);
  }
  const auto ran = script.pipe(
      "/tool \"~/my tools.json\"\n/tool\n/system @~/my\\ note.txt\n/system\nhi\n/export '~/my "
      "talk.md'\n/save \"~/my plan.session\"\n/load ~/my\\ plan.session\n",
      {}, true);
  CHECK(ran.status == 0);
  CHECK(ran.out == "{\"name\": \"weather\", \"parameters\": {}}\nmine\nyes\n");
  CHECK(std::filesystem::exists(script.folder / "my talk.md"));
  CHECK(std::filesystem::exists(script.folder / "my plan.session"));
  const auto again = script.pipe("/load '~/my plan.session'\n/system\n", {}, true);
  CHECK(again.out == "mine\n");
}

TEST_CASE("a control token that the model writes is fed never again", "[cpu][cli]") {
  const Scripted script({"a<think>b<｜title｜>c", "ok"});
  const auto ran = script.pipe("hi\nmore\nmore\n", {"--stats"});
  CHECK(ran.out == "a<think>b<｜title｜>c\nok\na<think>b<｜title｜>c\n");
  // The last token of the answer before, EOS, <｜User｜>, three of "more", <｜Assistant｜>,
  // </think>.
  std::size_t at = ran.err.find("\"prefilled_tokens\"");
  for (int turn = 1; turn < 3; ++turn) {
    at = ran.err.find("\"prefilled_tokens\"", at + 1);
    REQUIRE(at != std::string::npos);
    CHECK(ran.err.substr(at).starts_with("\"prefilled_tokens\": 8,"));
  }
  // Where thinking is kept, in it and behind it.
  const Scripted thinks({"hm<think>hm</think>a</think>b<think>", "x</think>ok"});
  const auto kept = thinks.pipe("hi\nmore\n", {"--stats", "--thinking", "high", "--keep-thinking"});
  CHECK(kept.out == "a</think>b<think>\nok\n");
  at = kept.err.find("\"prefilled_tokens\"");
  CHECK(kept.err.substr(kept.err.find("\"prefilled_tokens\"", at + 1))
            .starts_with("\"prefilled_tokens\": 8,"));
}

TEST_CASE("the line of a prompt that was stopped says how far it was read", "[cpu][cli][pty]") {
  const Scripted script({"yes"}, 20);
  const auto program = script.terminal({"--prefill-chunk", "16"});
  program->send(std::string(2000, 'q') + "\r");
  REQUIRE(program->wait_for("reading: "));
  program->send(kCtrlC);
  REQUIRE(program->wait_for("; stopped after reading "));
  REQUIRE(program->wait_for(" of 2004 tokens in "));
  REQUIRE(program->wait_for(kPrompt));
  CHECK(program->out().find("first token") == std::string::npos);
  enter(*program, "/stats");
  CHECK(program->out().find("0 answers in ") != std::string::npos);
}

TEST_CASE("what the engine makes ready at the prompt holds up no key, answer or leaving",
          "[cpu][cli][pty]") {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  {
    const Scripted script({"hello"}, 0, 3, 10);
    const auto program = script.terminal();
    const auto done = script.folder / "script.prepared";
    while (!std::filesystem::exists(done) &&
           Clock::now() - begin < std::chrono::seconds(30) * kPatience)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(std::filesystem::exists(done));  // with nothing typed
    program->send(kCtrlD);
    CHECK(program->wait() == 0);
  }
  // All of it would take 50 s.
  const auto start = Clock::now();
  const Scripted script({"hello"}, 0, 1000, 50);
  const auto program = script.terminal();
  enter(*program, "hi");
  CHECK(program->out().find("hello") != std::string::npos);
  enter(*program, "/think none");
  program->send("dropped");
  REQUIRE(program->wait_for("dropped"));
  program->send(kCtrlC);
  REQUIRE(program->wait_for("^C"));
  program->send(kCtrlC);
  REQUIRE(program->wait_for("Once more to leave"));
  program->send(kCtrlC);
  CHECK(program->wait() == 130);
  CHECK(script.pipe("hi\nhi\n").out == "hello\nhello\n");  // where nobody is waited for: none
  CHECK(Clock::now() - start < std::chrono::seconds(25) * kPatience);
  CHECK_FALSE(std::filesystem::exists(script.folder / "script.prepared"));
}

TEST_CASE("a context that fills up is shown, warned of, and never cut behind the user's back",
          "[cpu][cli][pty]") {
  const Scripted script({"0123456789"});
  const auto program = script.terminal({"--context", "64"});
  enter(*program, "abcdefghij");
  CHECK(program->out().find("context 24 of 64]") != std::string::npos);
  enter(*program, "abcdefghij");
  CHECK(program->out().find("warning") == std::string::npos);
  program->send("abcde\r");
  REQUIRE(program->wait_for("warning: 6"));
  REQUIRE(program->wait_for("64 tokens are in use"));
  REQUIRE(program->wait_for(kPrompt));
  program->send("abcdefghij\r");
  REQUIRE(program->wait_for("but the context holds 64"));
  REQUIRE(program->wait_for(kPrompt));
  enter(*program, "/undo");  // the refused question
  enter(*program, "/undo");  // the one before, which makes room
  enter(*program, "abc");
  CHECK(program->out().find("cached 50; answer 9 tokens") != std::string::npos);
}

TEST_CASE("an effort and a temperature of a saved session come back with it", "[cpu][cli][pty]") {
  const Scripted script({"hm</think>yes"});
  {
    const auto program = script.terminal({"--stats"});
    enter(*program, "/think high budget 100");
    enter(*program, "/set stop END");
    enter(*program, "/system be brief");
    enter(*program, "hi");
    enter(*program, "/save s");
    program->send(kCtrlD);
    CHECK(program->wait() == 0);
  }
  const auto program = script.terminal();
  program->send("/load s\r");
  REQUIRE(program->wait_for("3 messages"));
  REQUIRE(program->wait_for(kPrompt));
  program->send("/think\r");
  REQUIRE(program->wait_for("thinking high, at most 100 tokens"));
  program->send("/set stop\r");
  REQUIRE(program->wait_for("END"));
  program->send("/system\r");
  REQUIRE(program->wait_for("be brief"));
}

// INGOT_TEST_RECORD=FILE writes what is shown, for the page.
TEST_CASE("the page of the chat shows what the program shows", "[cpu][cli][pty]") {
  const Scripted script(
      {"A table of boxes; the hash picks one.</think>It finds a value by its key:\n\n```python\n"
       "ages = {\"Ada\": 36}\nprint(ages[\"Ada\"])  # 36\n```",
       "A risk.</think>Two keys may fall into one box (衝突): then both are compared. 😀"});
  PtyOptions options;
  options.columns = 120;  // no line with figures wraps
  options.rows = 60;
  const auto program = script.terminal({"--thinking", "high"}, options);
  enter(*program, "What is a hash table?");
  enter(*program, "What can go wrong\\\rwith it?");
  enter(*program, "/save tables");
  enter(*program, "/fork other");
  enter(*program, "/sessions");
  enter(*program, "/load tables");
  enter(*program, "/bogus");
  program->send("/qu\t\r");
  REQUIRE(program->wait() == 0);
  const std::string shown = std::regex_replace(
      program->screen().text(), std::regex("first token [0-9.]+ s, [0-9.]+ tokens/s"),
      "first token … s, … tokens/s");
  if (const char* file = std::getenv("INGOT_TEST_RECORD")) write_file(file, shown);
  const std::string page = *ingot::read_whole_file(golden_dir() / "../../docs/chat.md");
  CAPTURE(shown);
  CHECK(page.find("<!-- transcript -->\n~~~\n" + shown + "~~~\n") != std::string::npos);
}
