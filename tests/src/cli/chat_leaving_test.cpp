// What ends `ingot chat`, or a part of it, from outside: signals, editors, streams that are closed
// or full. What was said is kept, the terminal is as it was, and the status tells.
#include <fcntl.h>
#include <sys/file.h>

#include <csignal>
#include <thread>

#include "runtime/base/file_descriptor.hpp"
#include "src/chat/session_file.hpp"
#include "tests/src/cli/chat_on_terminal.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

using Chat = ChatOnTerminal;
using std::chrono::milliseconds;

std::size_t messages_in(const fs::path& file) {
  return value_or_throw(ingot::read_session(file)).messages.size();
}

PtyOptions with_editor(const std::string& command) {
  PtyOptions options;
  options.environment.push_back("EDITOR=" + command);
  options.environment.push_back("PATH=/usr/bin:/bin");
  return options;
}

/// `ingot chat` in a pipe by way of a shell, with what that does before and to its streams.
ProgramResult by_shell(const TempDir& home, const std::string& before, const std::string& after,
                       std::string_view input) {
  ProgramOptions options;
  options.program = "/bin/sh";
  options.environment = {"HOME=/nonexistent", "TERM=dumb",
                         "XDG_STATE_HOME=" + home.path().string()};
  options.input = input;
  const std::string line = before +
                           " exec \"$0\" chat --model \"$1\" --device cpu --temperature 0 "
                           "--max-tokens 4 --session plan " +
                           after;
  return run_ingot({"-c", line, ingot_program(), tiny_model()}, options);
}

fs::path plan_in(const TempDir& home) {
  return home / "ingot/sessions/plan.session";
}

/// As long as it lives, nothing is saved there: who saves waits.
ingot::FileDescriptor hold_saving(const fs::path& state) {
  fs::create_directories(state / "ingot/sessions");
  ingot::FileDescriptor folder(
      ::open((state / "ingot/sessions").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(folder.get(), LOCK_EX) == 0);
  return folder;
}

void wait_ms(int time) {
  std::this_thread::sleep_for(milliseconds(time));
}

}  // namespace

TEST_CASE("a signal saves a named session and gives the terminal back", "[cpu][cli][pty]") {
  const int signal = GENERATE(SIGTERM, SIGHUP, SIGQUIT, SIGXCPU);
  CAPTURE(signal);
  Chat chat({"--session", "plan"});
  chat.ask("hello");
  CHECK(!chat.program.echoes());
  chat.program.signal(signal);
  CHECK(chat.program.wait() == 128 + signal);
  CHECK(chat.program.echoes());
  CHECK(!chat.program.screen().bracketed_paste());
  CHECK(messages_in(chat.session_file("plan")) == 2);
}

TEST_CASE("an interrupt right behind a request to end does not hide it", "[cpu][cli][pty]") {
  Chat chat({"--session", "plan"});
  chat.ask("hello");
  chat.program.signal(SIGTERM);
  chat.program.signal(SIGINT);
  CHECK(chat.program.wait() == 143);
  CHECK(messages_in(chat.session_file("plan")) == 2);
}

TEST_CASE("signals behind each other take no session away that is being saved", "[cpu][cli][pty]") {
  const auto [first, second] = GENERATE(table<int, int>({{SIGHUP, SIGHUP},
                                                         {SIGTERM, SIGTERM},
                                                         {SIGTERM, SIGHUP},
                                                         {SIGHUP, SIGTERM},
                                                         {SIGQUIT, SIGQUIT},
                                                         {SIGXCPU, SIGXCPU}}));
  CAPTURE(first, second);
  Chat chat({"--session", "plan"});
  chat.ask("hello");
  {
    const auto held = hold_saving(chat.state);
    chat.program.signal(first);
    for (int again = 0; again < 3; ++again) {
      wait_ms(20);
      chat.program.signal(second);
    }
    CHECK(!fs::exists(chat.session_file("plan")));
  }
  const int status = chat.program.wait();
  CHECK((status == 128 + first || status == 128 + second));
  CHECK(messages_in(chat.session_file("plan")) == 2);
}

TEST_CASE("interrupts behind each other take no session of a pipe away", "[cpu][cli]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP);
  CAPTURE(signal);
  const TempDir home;
  auto held = hold_saving(home.path());
  ProgramOptions options;
  options.environment = {"HOME=/nonexistent", "TERM=dumb",
                         "XDG_STATE_HOME=" + home.path().string()};
  options.input = "hello\n";
  options.keep_input_open = true;
  options.wait_for = "prompt_tokens";
  options.then = [&](int process) {
    for (int again = 0; again < 4; ++again) {
      ::kill(process, signal);
      wait_ms(20);
    }
    held = ingot::FileDescriptor();
  };
  const auto ran = run_ingot(Chat::arguments(tiny_model(), {"--session", "plan"}), options);
  CHECK(ran.status == 128 + signal);
  CHECK(messages_in(plan_in(home)) == 2);
}

TEST_CASE("who insists for a second ends a chat that cannot save, a hang-up does not",
          "[cpu][cli][pty]") {
  const int insists = GENERATE(SIGTERM, SIGINT);
  CAPTURE(insists);
  Chat chat({"--session", "plan"});
  chat.ask("hello");
  const auto held = hold_saving(chat.state);
  chat.program.signal(SIGHUP);
  wait_ms(1200);
  chat.program.signal(SIGHUP);
  CHECK(chat.program.wait(0.3) == -1);
  chat.program.signal(insists);
  CHECK(chat.program.wait(5) == 128 + insists);
  CHECK(!fs::exists(chat.session_file("plan")));
}

TEST_CASE("what a save that was killed left behind goes a day later", "[cpu][cli]") {
  const TempDir home;
  CHECK(by_shell(home, "", "", "hello\n").status == 0);
  const fs::path folder = home / "ingot/sessions";
  for (const char* name : {".publish-old", ".publish-new"})
    write_file(folder / name, "half");
  fs::last_write_time(folder / ".publish-old",
                      fs::file_time_type::clock::now() - std::chrono::hours(25));
  CHECK(by_shell(home, "", "", "again\n").status == 0);
  CHECK(!fs::exists(folder / ".publish-old"));
  CHECK(fs::exists(folder / ".publish-new"));
  CHECK(messages_in(plan_in(home)) == 4);
}

TEST_CASE("a limit of the size of files is an error of that file and loses no session",
          "[cpu][cli]") {
  const TempDir home;
  CHECK(by_shell(home, "", "", "hello\n").status == 0);
  const std::string before = read_file(plan_in(home));
  const auto ran = by_shell(home, "ulimit -f 1;", "", "again\n");
  CHECK(ran.status == 1);
  CHECK(ran.err.find("the conversation \"plan\" is not saved: ") != std::string::npos);
  CHECK(ran.err.find("File too large") != std::string::npos);
  CHECK(!ran.out.empty());
  CHECK(read_file(plan_in(home)) == before);
  const auto told = by_shell(home, "ulimit -f 1;", "", "/save " + (home / "x.session").string());
  CHECK(told.status == 1);
  CHECK(told.err.find("File too large") != std::string::npos);
}

TEST_CASE("a named session is saved where standard output is closed or full", "[cpu][cli]") {
  const std::string where = GENERATE(">&-", ">/dev/full");
  CAPTURE(where);
  const TempDir home;
  const auto ran = by_shell(home, "", where, "hello\n");
  CHECK(ran.status == 1);
  CHECK(ran.err.find("writing to standard output: ") != std::string::npos);
  CHECK(messages_in(plan_in(home)) == 2);
}

TEST_CASE("a named session is saved where the reader of a pipe goes", "[cpu][cli]") {
  const TempDir home;
  ProgramOptions options;
  options.environment = {"HOME=/nonexistent", "TERM=dumb",
                         "XDG_STATE_HOME=" + home.path().string()};
  options.input = "hello\nagain\n";
  options.close_output = true;
  const auto ran = run_ingot({"chat", "--model", tiny_model(), "--device", "cpu", "--session",
                              "plan", "--temperature", "0", "--max-tokens", "4"},
                             options);
  CHECK(ran.status == 141);
  CHECK(ran.err.empty());
  CHECK(messages_in(plan_in(home)) == 2);
}

TEST_CASE("a session that a pipe cannot save is no success", "[cpu][cli]") {
  const TempDir home;
  write_file(home / "ingot", "this is no folder");
  const auto left = by_shell(home, "", "", "hello\n");
  CHECK(left.status == 1);
  CHECK(left.err.find("the conversation \"plan\" is not saved: ") != std::string::npos);
  const auto told = by_shell(home, "", "", "/save other\n");
  CHECK(told.status == 1);
  CHECK(told.err.find("creating the folder of sessions ") != std::string::npos);
}

TEST_CASE("a draft whose editor fails is kept and not sent", "[cpu][cli][pty]") {
  const std::string editor = GENERATE("false", "exit 3 #", "kill -9 $$ #", "/nowhere/editor",
                                      "echo changed >\"$1\"; exit 1 #");
  CAPTURE(editor);
  Chat chat({}, with_editor(editor));
  const std::string out = chat.enter("/edit the draft");
  CHECK(out.find("failed with status") != std::string::npos);
  CHECK(out.find("prompt_tokens") == std::string::npos);
  REQUIRE(chat.program.wait_for("the draft"));  // at the prompt
  CHECK(chat.program.screen().lines().back() == ">>> the draft");
  chat.program.send("\x18\x05");
  REQUIRE(chat.program.wait_for("failed with status"));
  REQUIRE(chat.program.wait_for("the draft"));
  CHECK(chat.program.out().find("prompt_tokens") == std::string::npos);
  chat.program.send("!");
  REQUIRE(chat.program.wait_for("!"));
  CHECK(chat.ask("").at("finish_reason") == "length");
  CHECK(chat.enter("/tokens").find(counted_tokens("the draft!")) != std::string::npos);
}

TEST_CASE("a failing editor in a pipe sends nothing and is no success", "[cpu][cli]") {
  ProgramOptions options;
  options.environment.push_back("EDITOR=exit 3 #");
  options.input = "/edit the draft\n";
  const auto ran = run_ingot(ChatOnTerminal::arguments(tiny_model(), {}), options);
  CHECK(ran.status == 1);
  CHECK(ran.out.empty());
  CHECK(ran.err.find("exit 3 # failed with status 3") != std::string::npos);
}

TEST_CASE("the line's end that an editor appends is not sent", "[cpu][cli][pty]") {
  // One that the user wrote is.
  const auto [editor, text] = GENERATE(table<std::string, std::string>(
      {{"printf 'a\\n' >\"$1\" #", "a"}, {"printf 'a\\n\\n' >\"$1\" #", "a\n"}}));
  CAPTURE(editor);
  const std::string counted = counted_tokens(text);
  Chat chat({}, with_editor(editor));
  chat.enter("/edit");
  CHECK(chat.enter("/tokens").find(counted) != std::string::npos);
  chat.program.send("\x18\x05");
  REQUIRE(chat.program.wait_for(">>> a"));
  chat.program.send("\r");
  REQUIRE(chat.program.wait_for("prompt_tokens"));
  REQUIRE(chat.program.wait_for(kPrompt));
  CHECK(chat.enter("/tokens").find(counted) != std::string::npos);
}

TEST_CASE("a signal and a hang-up wait for no editor", "[cpu][cli][pty]") {
  const int signal = GENERATE(SIGTERM, SIGHUP, SIGQUIT, 0);
  const bool deaf = GENERATE(false, true);
  const bool by_key = GENERATE(false, true);
  CAPTURE(signal, deaf, by_key);
  const TempDir folder;
  const std::string alive = folder / "alive";
  // A shell that waits for a program: both have to end.
  Chat chat({"--session", "plan"}, with_editor(std::string(deaf ? "trap '' TERM HUP QUIT; " : "") +
                                               "touch " + alive + "; echo ready; sleep 100; : "));
  chat.ask("hello");
  chat.program.send(by_key ? "draft\x18\x05" : "/edit draft\r");
  REQUIRE(chat.program.wait_for("ready"));
  const auto start = std::chrono::steady_clock::now();
  if (signal == 0) {
    chat.program.hang_up();
  } else {
    chat.program.signal(signal);
  }
  CHECK(chat.program.wait(10) == 128 + (signal == 0 ? SIGHUP : signal));
  CHECK(std::chrono::steady_clock::now() - start < milliseconds(2000) * kPatience);
  CHECK(messages_in(chat.session_file("plan")) == 2);
}

TEST_CASE("an editor is in front of the terminal, and Ctrl-C there is its own", "[cpu][cli][pty]") {
  Chat chat({}, with_editor("echo ready; read line; printf \"%s\" \"$line\" >"));
  chat.program.send("/edit\r");
  REQUIRE(chat.program.wait_for("ready"));
  chat.program.send("typed there\n");
  REQUIRE(chat.program.wait_for("prompt_tokens"));
  REQUIRE(chat.program.wait_for(kPrompt));
  CHECK(chat.enter("/tokens").find(counted_tokens("typed there")) != std::string::npos);
  chat.program.send("/edit draft\r");
  REQUIRE(chat.program.wait_for("ready"));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for("failed with status 130"));
  REQUIRE(chat.program.wait_for(">>> draft"));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for("^C"));
  CHECK(chat.leave() == 0);
}

TEST_CASE("SIGINT from outside is Ctrl-C: twice at an empty prompt it leaves", "[cpu][cli][pty]") {
  PtyOptions options;
  const bool dumb = GENERATE(false, true);
  if (dumb) options.environment = {"HOME=/nonexistent", "TERM=dumb"};
  Chat chat({}, options);
  chat.program.signal(SIGINT);
  REQUIRE(chat.program.wait_for("Once more to leave"));
  REQUIRE(chat.program.wait_for(kPrompt));
  chat.program.signal(SIGINT);
  CHECK(chat.program.wait() == 130);
}

TEST_CASE("what is typed between two interrupts begins their count anew", "[cpu][cli][pty]") {
  const bool by_signal = GENERATE(false, true);
  CAPTURE(by_signal);
  Chat chat;
  const auto interrupt = [&] {
    if (by_signal) {
      chat.program.signal(SIGINT);
    } else {
      chat.program.send(kCtrlC);
    }
  };
  interrupt();
  REQUIRE(chat.program.wait_for("Once more to leave"));
  REQUIRE(chat.program.wait_for(kPrompt));
  chat.program.send("half a message");
  REQUIRE(chat.program.wait_for("message"));
  interrupt();  // drops it
  REQUIRE(chat.program.wait_for("^C"));
  REQUIRE(chat.program.wait_for(kPrompt));
  interrupt();
  REQUIRE(chat.program.wait_for("Once more to leave"));
  REQUIRE(chat.program.wait_for(kPrompt));
  interrupt();
  CHECK(chat.program.wait() == 130);
}

TEST_CASE("an editor that is suspended and the chat are one job of the shell", "[cpu][cli][pty]") {
  const TempDir home;
  PtyOptions options = with_editor("echo ready; kill -TSTP 0; printf hello >");
  options.environment.push_back("XDG_STATE_HOME=" + home.path().string());
  options.program = "/bin/bash";
  PtyProgram shell({"--norc", "--noediting", "-i"}, options);
  std::string line = ingot_program();
  for (const std::string& argument : Chat::arguments(tiny_model(), {}))
    line += " '" + argument + "'";
  shell.send(line + "\r");
  REQUIRE(shell.wait_for(kPrompt));
  shell.send("/edit\r");
  REQUIRE(shell.wait_for("ready"));
  REQUIRE(shell.wait_for("Stopped"));
  shell.send("echo in the $((1 + 1))nd; fg\r");
  REQUIRE(shell.wait_for("in the 2nd"));
  REQUIRE(shell.wait_for("\"finish_reason\": \"length\""));
  REQUIRE(shell.wait_for(kPrompt));
  shell.send("/tokens\r");
  REQUIRE(shell.wait_for(counted_tokens("hello")));
  REQUIRE(shell.wait_for(kPrompt));
  shell.send(kCtrlD);
  REQUIRE(shell.wait_for("goes on with it"));
  REQUIRE(shell.wait_for("bash-"));  // what is typed before the terminal is given back may be lost
  shell.send("echo back in the shell$((1 + 1))\r");
  CHECK(shell.wait_for("back in the shell2"));
}
