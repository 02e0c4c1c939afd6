// Sessions of `ingot chat`, the built program, on a terminal and in a pipe.
#include <sys/stat.h>

#include <csignal>

#include "src/chat/session_file.hpp"
#include "tests/src/cli/chat_on_terminal.hpp"
#include "tests/support/run_program.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

using Chat = ChatOnTerminal;

/// The most that a turn but the first one feeds: the last token of the answer before, which was cut
/// at its length, EOS, <｜User｜>, the letters, <｜Assistant｜>, </think>.
int fed(int letters) {
  return letters + 5;
}

/// Files of saved sessions, those of the earliest names first.
std::vector<fs::path> sessions(const fs::path& state) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(state / "ingot/sessions", error))
    out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

fs::path only_session(const fs::path& state) {
  const auto found = sessions(state);
  REQUIRE(found.size() == 1);
  return found[0];
}

std::size_t messages_in(const fs::path& file) {
  return value_or_throw(ingot::read_session(file)).messages.size();
}

ProgramOptions with_state(const TempDir& home, std::string_view input) {
  ProgramOptions options;
  options.environment = {"HOME=/nonexistent", "TERM=dumb",
                         "XDG_STATE_HOME=" + home.path().string()};
  options.input = input;
  return options;
}

}  // namespace

TEST_CASE("a conversation without a name is kept when another begins", "[cpu][cli][pty]") {
  const std::string way = GENERATE("/new", "/new plan", "/fork plan", "/load good");
  CAPTURE(way);
  const TempDir home;
  if (way == "/load good") {
    Chat chat({}, {}, tiny_model(), home.path());
    chat.ask("hello");
    chat.enter("/save good");
    CHECK(chat.leave() == 0);
  }
  const std::size_t before = sessions(home.path()).size();
  Chat chat({}, {}, tiny_model(), home.path());
  chat.ask("hello");
  chat.ask("again");
  const std::string out = chat.enter(way);
  const std::string words = "The conversation before is called \"";
  const std::size_t at = out.find(words);
  REQUIRE(at != std::string::npos);
  const std::string name =
      out.substr(at + words.size(), out.find('"', at + words.size()) - at - words.size());
  CHECK(chat.enter("/sessions").find("  " + name + " ") != std::string::npos);
  chat.ask("third");
  CHECK(chat.enter("/load " + name).find(name + ": 4 messages, ") != std::string::npos);
  CHECK(chat.enter("/load nothing").find("nothing.session") != std::string::npos);
  CHECK(chat.leave() == 0);
  CHECK(messages_in(chat.session_file(name)) == 4);
  CHECK(sessions(home.path()).size() == (way == "/load good" ? before + 1 : before + 2));
}

TEST_CASE("an unnamed conversation is left under a name of its own", "[cpu][cli][pty]") {
  const TempDir home;
  for (int round = 0; round < 2; ++round) {
    Chat chat({}, {}, tiny_model(), home.path());
    chat.ask("hello");
    if (round == 1) chat.ask("again");
    CHECK(chat.leave() == 0);
    CHECK(chat.program.out().find("goes on with it") != std::string::npos);
  }
  const auto saved = sessions(home.path());
  REQUIRE(saved.size() == 2);
  CHECK(messages_in(saved[0]) + messages_in(saved[1]) == 6);
  Chat chat({"--session", saved[0].stem()}, {}, tiny_model(), home.path());
  chat.ask("hello");
  CHECK(chat.leave() == 0);
  CHECK(sessions(home.path()).size() == 2);
}

TEST_CASE("saved sessions and the files of others are not written over", "[cpu][cli][pty]") {
  const TempDir home;
  {
    Chat chat({}, {}, tiny_model(), home.path());
    chat.ask("hello");
    chat.enter("/save plan");
    CHECK(chat.leave() == 0);
  }
  Chat chat({}, {}, tiny_model(), home.path());
  const std::string bytes = read_file(chat.session_file("plan"));
  write_file(home / "notes.txt", "mine");
  chat.ask("hello");
  chat.ask("again");
  for (const char* way : {"/new plan", "/fork plan"})
    CHECK(chat.enter(way).find("\"plan\" is saved already") != std::string::npos);
  CHECK(chat.enter("/save plan").find("another session is there; /save with another name") !=
        std::string::npos);
  for (const char* force : {"", "--force "}) {
    CHECK(chat.enter("/save " + std::string(force) + (home / "notes.txt").string())
              .find("no session of ingot") != std::string::npos);
  }
  CHECK(chat.enter("/save " + (home / "no/x.session").string()).find("No such file") !=
        std::string::npos);
  CHECK(read_file(home / "notes.txt") == "mine");
  CHECK(!fs::exists(home / "no"));
  CHECK(read_file(chat.session_file("plan")) == bytes);
  const std::string path = home / "copy.session";
  CHECK(chat.enter("/save " + path).find("Saved as " + path + ": 4 messages") != std::string::npos);
  chat.ask("third");
  CHECK(chat.enter("/save").find("Saved as " + path + ": 6 messages") != std::string::npos);
  CHECK(chat.enter("/save --force plan").find("Saved as plan: 6 messages") != std::string::npos);
  CHECK(chat.leave() == 0);
  CHECK(messages_in(path) == 6);
  CHECK(messages_in(chat.session_file("plan")) == 6);
}

TEST_CASE("two terminals that go on with one session both keep what they said", "[cpu][cli][pty]") {
  const TempDir home;
  Chat first({"--session", "plan"}, {}, tiny_model(), home.path());
  first.ask("hello");
  first.enter("/save");
  Chat second({"--session", "plan"}, {}, tiny_model(), home.path());
  second.ask("from the second");
  CHECK(second.leave() == 0);
  first.ask("from the first");
  first.ask("again");
  CHECK(first.enter("/save").find("it has changed since this session was read or written") !=
        std::string::npos);
  CHECK(first.leave() == 0);
  CHECK(first.program.out().find("the session is saved as \"plan-2\"") != std::string::npos);
  CHECK(messages_in(first.session_file("plan")) == 4);
  CHECK(messages_in(first.session_file("plan-2")) == 6);
}

TEST_CASE("a question whose reading is ended is the one that /retry answers", "[cpu][cli][pty]") {
  Chat chat({"--prefill-chunk", "16"});
  chat.ask("hello");
  chat.program.send(std::string(3000, 'q') + "\r");
  REQUIRE(chat.program.wait_for("reading: "));
  chat.program.send(kCtrlC);
  REQUIRE(chat.program.wait_for("Not answered: /retry answers it"));
  REQUIRE(chat.program.wait_for(kPrompt));
  const std::string again = chat.enter("/retry");
  CHECK(again.find("\"prompt_tokens\": 30") != std::string::npos);
  CHECK(again.find("\"finish_reason\": \"length\"") != std::string::npos);
  CHECK(chat.enter("/sessions").find("   4 messages") != std::string::npos);
}

TEST_CASE("a saved question without an answer waits for /retry at every way in",
          "[cpu][cli][pty]") {
  const TempDir state;
  {
    Chat chat({"--prefill-chunk", "16", "--session", "plan"}, {}, tiny_model(), state.path());
    chat.program.send(std::string(3000, 'q') + "\r");
    REQUIRE(chat.program.wait_for("reading: "));
    chat.program.send(kCtrlC);
    REQUIRE(chat.program.wait_for("Not answered: /retry answers it"));
    REQUIRE(chat.program.wait_for(kPrompt));
    CHECK(chat.leave() == 0);
  }
  constexpr std::string_view kWaits =
      "The last question has no answer yet: /retry answers it, /undo takes it back.";
  const bool by_flag = GENERATE(false, true);
  Chat chat(by_flag ? std::vector<std::string>{"--session", "plan"} : std::vector<std::string>{},
            {}, tiny_model(), state.path());
  const std::string shown = by_flag ? chat.program.out() : chat.enter("/load plan");
  CHECK(shown.find(kWaits) != std::string::npos);
  CHECK(shown.find("prompt_tokens") == std::string::npos);
  // Gone to once more, it says so again.
  CHECK(chat.enter("/new other").find(kWaits) == std::string::npos);
  CHECK(chat.enter("/load plan").find(kWaits) != std::string::npos);
  CHECK(chat.enter("/sessions").find("   1 message,") != std::string::npos);
  const std::string answered = chat.enter("/retry");
  CHECK(answered.find("\"prompt_tokens\": 3004") != std::string::npos);
  CHECK(answered.find("\"finish_reason\": \"length\"") != std::string::npos);
  CHECK(chat.enter("/load plan").find(kWaits) == std::string::npos);
}

TEST_CASE("named sessions of a pipe are saved at its end, a model that changed is said",
          "[cpu][cli]") {
  const TempDir home;
  const auto options = with_state(home, "hello\n/new plan\nhello\nagain\n/fork other\nhello\n");
  CHECK(run_ingot(ChatOnTerminal::arguments(tiny_model(), {}), options).status == 0);
  REQUIRE(sessions(home.path()).size() == 2);
  CHECK(messages_in(home / "ingot/sessions/plan.session") == 4);
  CHECK(messages_in(home / "ingot/sessions/other.session") == 6);
  const TempDir folder;
  write_changed_tiny_model(folder / "other", "head.weight", {7}, 0);
  const auto changed = run_ingot(
      ChatOnTerminal::arguments(folder / "other", {"--session", "plan", "-p", "more"}), options);
  CHECK(changed.status == 0);
  CHECK(changed.err.find("warning: the session plan: 4 messages, it was saved with another model "
                         "(tiny), so it is fed again") != std::string::npos);
  CHECK(messages_in(home / "ingot/sessions/plan.session") == 6);
}

TEST_CASE("what is no file is loaded, attached and exported to by nobody", "[cpu][cli]") {
  const TempDir home;
  REQUIRE(::mkfifo((home / "fifo.session").c_str(), 0600) == 0);
  const std::string fifo = home / "fifo.session";
  const std::string folder = home / "no/x.md";
  for (const auto& [command, why] :
       {std::pair{"/load " + fifo, "reading the session " + fifo + ": this is no regular file"},
        std::pair{"/attach " + fifo, "reading " + fifo + ": this is no regular file"},
        std::pair{"/tool " + fifo, "reading " + fifo + ": this is no regular file"},
        std::pair{std::string("/attach -"), std::string("no such file")},
        std::pair{"/save " + fifo, fifo + ": what is there is no session of ingot, and stays"},
        std::pair{"/export " + folder, "exporting to " + folder + ": there is no folder"}}) {
    CAPTURE(command);
    const auto ran =
        run_ingot(ChatOnTerminal::arguments(tiny_model(), {}), with_state(home, command + "\n"));
    CHECK(ran.status == 2);
    CHECK(ran.err.find(why) != std::string::npos);
  }
  CHECK(!fs::exists(home / "no"));
}

TEST_CASE("a turn feeds what is new, also after /undo and /retry", "[cpu][cli][pty]") {
  Chat chat;
  CHECK(chat.ask("hello").at("prefilled_tokens") == 9);
  CHECK(chat.ask("again").at("prefilled_tokens") <= fed(5));
  CHECK(chat.ask("third").at("prefilled_tokens") <= fed(5));
  chat.enter("/undo");
  CHECK(chat.ask("other").at("prefilled_tokens") <= fed(5));
  CHECK(chat.enter("/retry").find("\"prefilled_tokens\": 1,") != std::string::npos);
  chat.enter("/undo");
  chat.enter("/undo");
  CHECK(chat.ask("x").at("prefilled_tokens") <= fed(1));
}

TEST_CASE("a saved session goes on in the next chat without being fed again", "[cpu][cli][pty]") {
  const TempDir home;
  std::string answer;
  {
    Chat chat({}, {}, tiny_model(), home.path());
    chat.ask("hello");
    chat.enter("/set top_p 0.5");
    CHECK(chat.enter("/save plan").find("Saved as plan: 2 messages, 12 tokens") !=
          std::string::npos);
    const auto there = chat.ask("again");
    CHECK(there.at("prefilled_tokens") <= fed(5));
    CHECK(chat.leave() == 0);  // saves what is new
    CHECK(chat.program.out().find("the session is saved as \"plan\"") != std::string::npos);
  }
  Chat chat({}, {}, tiny_model(), home.path());
  CHECK(chat.enter("/sessions").find("plan") != std::string::npos);
  const std::string loaded = chat.enter("/load plan");
  CHECK(loaded.find("plan: 4 messages, ") != std::string::npos);
  CHECK(loaded.find("tokens are in place.") != std::string::npos);
  CHECK(chat.enter("/set top_p").find("0.5") != std::string::npos);
  CHECK(chat.enter("/retry").find("\"prefilled_tokens\": 1,") != std::string::npos);
  CHECK(chat.ask("more").at("prefilled_tokens") <= fed(4));
  CHECK((fs::status(home / "ingot/sessions/plan.session").permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("what is taken back stays in the file until new turns or /save write it",
          "[cpu][cli][pty]") {
  const std::string then = GENERATE("", "/save", "new", "/load plan");
  CAPTURE(then);
  Chat chat({"--session", "plan"});
  chat.ask("hello");
  chat.ask("again");
  chat.enter("/save");
  const std::string saved = read_file(chat.session_file("plan"));
  chat.ask("third");
  chat.enter("/undo");
  CHECK(chat.enter("/sessions").find("saved") == std::string::npos);
  chat.enter("/undo");
  const std::string cut = chat.enter("/sessions");
  CAPTURE(cut);
  CHECK(cut.find("* plan                    2 messages, ") != std::string::npos);
  CHECK(cut.find("saved with what was taken back") != std::string::npos);
  if (then == "new") {
    chat.ask("other");
  } else if (!then.empty()) {
    const std::string out = chat.enter(then);
    if (then == "/load plan") {
      CHECK(out.find("plan: 4 messages, ") != std::string::npos);
      CHECK(chat.enter("/sessions").find("* plan                    4 messages") !=
            std::string::npos);
    }
  }
  CHECK(chat.leave() == 0);
  const bool keeps =
      chat.program.out().find("stays saved with what was taken back") != std::string::npos;
  CHECK(keeps == then.empty());
  const auto left = value_or_throw(ingot::read_session(chat.session_file("plan")));
  const bool as_saved = then.empty() || then == "/load plan";
  CHECK((read_file(chat.session_file("plan")) == saved) == as_saved);
  CHECK(left.messages.size() == (then == "/save" ? 2u : 4u));
  if (then == "new") CHECK(left.messages[2].content == "other");
}

TEST_CASE("/load of the session's own name loses no new turn", "[cpu][cli][pty]") {
  Chat chat({"--session", "plan"});
  chat.ask("hello");
  chat.enter("/save");
  CHECK(chat.enter("/retry").find("prompt_tokens") != std::string::npos);
  chat.ask("again");
  CHECK(chat.enter("/load plan").find("plan: 4 messages, ") != std::string::npos);
  CHECK(chat.leave() == 0);
  CHECK(messages_in(chat.session_file("plan")) == 4);
}

TEST_CASE("a question that was refused is the last one for /retry and /undo", "[cpu][cli]") {
  const TempDir home;
  const auto run = [&](std::string input) {
    return run_ingot(Chat::arguments(tiny_model(), {"--context", "64", "--json"}),
                     with_state(home, input));
  };
  const std::string refused = std::string(400, 'q') + "\n";
  const auto answers = [](const ProgramResult& ran) {
    return std::count(ran.out.begin(), ran.out.end(), '\n');
  };
  // The first /undo drops it, the second one takes "hello" back, and the third finds nothing.
  const auto dropped = run("hello\n" + refused + "/undo\n/retry\n");
  CHECK(answers(dropped) == 2);
  CHECK(dropped.err.find("the context holds 64") != std::string::npos);
  const auto twice = run("hello\n" + refused + "/undo\n/undo\n/undo\nnever asked\n");
  CHECK(answers(twice) == 1);
  CHECK(twice.err.find("there is nothing to take back") != std::string::npos);
  const auto again = run("hello\n" + refused + "/retry\n");
  CHECK(answers(again) == 1);
}

TEST_CASE("/sessions lists files alone, and says which are damaged", "[cpu][cli]") {
  const TempDir home;
  CHECK(run_ingot(Chat::arguments(tiny_model(), {"--session", "plan"}), with_state(home, "hello\n"))
            .status == 0);
  const fs::path folder = home / "ingot/sessions";
  const std::string bytes = read_file(folder / "plan.session");
  std::string flipped = bytes;
  flipped[bytes.size() / 2] = static_cast<char>(flipped[bytes.size() / 2] ^ 1);
  write_file(folder / "flipped.session", flipped);
  write_file(folder / "short.session", bytes.substr(0, bytes.size() / 2));
  write_file(folder / "empty.session", "");
  write_file(folder / "text.session", "this is a text and no session");
  fs::create_directories(folder / "folder.session");
  REQUIRE(::mkfifo((folder / "fifo.session").c_str(), 0600) == 0);
  const auto ran = run_ingot(Chat::arguments(tiny_model(), {}), with_state(home, "/sessions\n"));
  CHECK(ran.status == 0);
  CHECK(ran.out.find("folder") == std::string::npos);
  CHECK(ran.out.find("fifo") == std::string::npos);
  CHECK(std::count(ran.out.begin(), ran.out.end(), '\n') == 6);
  const auto line_of = [&](const std::string& name) {
    const std::size_t at = ran.out.find("  " + name + " ");
    REQUIRE(at != std::string::npos);
    return ran.out.substr(at, ran.out.find('\n', at) - at);
  };
  CHECK(line_of("plan").ends_with("KiB"));
  CHECK(line_of("flipped").ends_with("; damaged: its checksum is wrong: it is damaged"));
  CHECK(line_of("short").ends_with("; damaged: it is cut short"));
  CHECK(line_of("empty").ends_with("; damaged: it is empty"));
  CHECK(line_of("text").ends_with("; damaged: it is no session of ingot"));
}

TEST_CASE("a saved session is branched and returned to", "[cpu][cli][pty]") {
  Chat chat;
  chat.ask("hello");
  chat.enter("/save trunk");
  CHECK(chat.enter("/fork branch").find("In \"branch\" now, a copy of trunk.") !=
        std::string::npos);
  CHECK(chat.ask("left").at("prefilled_tokens") <= fed(4));
  CHECK(chat.enter("/load trunk").find("trunk: 2 messages") != std::string::npos);
  CHECK(chat.ask("right").at("prefilled_tokens") <= fed(5));
  CHECK(chat.enter("/load branch").find("branch: 4 messages") != std::string::npos);
  CHECK(chat.ask("on").at("prefilled_tokens") <= fed(2));
  CHECK(chat.enter("/fork trunk").find("open already") != std::string::npos);
  const std::string list = chat.enter("/sessions");
  CHECK(list.find("* branch") != std::string::npos);
  CHECK(list.find("  trunk") != std::string::npos);
  CHECK(list.find("not saved") != std::string::npos);
  CHECK(chat.leave() == 0);
  CHECK(fs::exists(chat.session_file("branch")));
}

TEST_CASE("a session file that cannot be used leaves the running session alone",
          "[cpu][cli][pty]") {
  Chat chat;
  chat.ask("hello");
  chat.enter("/save good");
  const std::string bytes = *ingot::read_whole_file(chat.session_file("good"));
  const auto refused = [&](const std::string& content, const std::string& why) {
    write_file(chat.session_file("bad"), content);
    const std::string out = chat.enter("/load bad");
    CAPTURE(out);
    CHECK(out.find("bad.session: " + why) != std::string::npos);
  };
  refused("", "it is empty");
  refused(bytes.substr(0, bytes.size() / 2), "it is cut short");
  refused("[{\"role\": \"user\"}]", "it is no session of ingot");
  std::string newer = bytes;
  newer[18] = 9;
  refused(newer, "it is of format 9");
  std::string damaged = bytes;
  damaged[bytes.size() / 2] = static_cast<char>(damaged[bytes.size() / 2] ^ 1);
  refused(damaged, "its checksum is wrong");
  CHECK(chat.enter("/load missing").find("missing.session") != std::string::npos);
  CHECK(chat.enter("/load ../x/y").find("../x/y") != std::string::npos);
  CHECK(chat.enter("/load").find("which?") != std::string::npos);
  CHECK(chat.ask("again").at("prefilled_tokens") <= fed(5));
}

TEST_CASE("a session of another model is fed again, and says so", "[cpu][cli][pty]") {
  const TempDir home;
  {
    Chat chat({}, {}, tiny_model(), home.path());
    chat.ask("hello");
    chat.enter("/save plan");
    chat.leave();
  }
  const TempDir folder;
  write_changed_tiny_model(folder / "other", "head.weight", {7}, 0);
  Chat chat({}, {}, folder / "other", home.path());
  CHECK(chat.enter("/load plan").find("saved with another model (tiny), so it is fed again") !=
        std::string::npos);
  const auto stats = chat.ask("again");
  CHECK(stats.at("cached_tokens") == 0);
  CHECK(stats.at("prompt_tokens") > 9);
}

TEST_CASE("a signal or a terminal that goes saves the session first", "[cpu][cli][pty]") {
  const int signal = GENERATE(SIGTERM, SIGHUP, 0);
  const bool answering = GENERATE(false, true);
  CAPTURE(signal, answering);
  const TempDir folder;
  Chat chat({"--max-tokens", answering ? "100000" : "3", "--context", "100000"}, {},
            endless_model(folder));
  if (answering) {
    chat.program.send("hello\r");
    REQUIRE(chat.program.wait_for("\r\n"));
    REQUIRE(chat.wait_for_answer(10));
  } else {
    chat.ask("hello");
  }
  if (signal == 0) {
    chat.program.hang_up();
  } else {
    chat.program.signal(signal);
  }
  CHECK(chat.program.wait() == 128 + (signal == 0 ? SIGHUP : signal));
  const auto saved = ingot::read_session(only_session(chat.state));
  REQUIRE(saved);
  CHECK(saved->messages.size() == 2);
  CHECK(!saved->sequences.empty());
}

TEST_CASE("a home that cannot be written is said, and the chat goes on", "[cpu][cli][pty]") {
  const TempDir home;
  fs::create_directories(home / "ingot");
  fs::permissions(home / "ingot", fs::perms::owner_read | fs::perms::owner_exec |
                                      fs::perms::others_read | fs::perms::others_exec);
  fs::permissions(home.path(), fs::perms(0755));
  PtyOptions options;
  options.as_nobody = true;
  Chat chat({}, options, tiny_model(), home.path());
  const std::string first = chat.enter("hello");
  CHECK(first.find("entries are kept until the end of this program only") != std::string::npos);
  CHECK(chat.enter("/save plan").find("creating") != std::string::npos);
  CHECK(chat.ask("again").at("prefilled_tokens") <= fed(5));
  CHECK(chat.leave() == 0);
}

TEST_CASE("a named session is kept from pipe to pipe", "[cpu][cli]") {
  const TempDir home;
  ProgramOptions options;
  options.environment = {"HOME=/nonexistent", "TERM=dumb",
                         "XDG_STATE_HOME=" + home.path().string()};
  options.input = "hello\n";
  const std::vector<std::string> arguments =
      ChatOnTerminal::arguments(tiny_model(), {"--session", "pipe"});
  const auto first = run_ingot(arguments, options);
  CHECK(first.status == 0);
  const auto second = run_ingot(arguments, options);
  CHECK(second.status == 0);
  CHECK(first.err.find("\"prefilled_tokens\": 9,") != std::string::npos);
  CHECK(second.err.find("\"prefilled_tokens\": 10,") != std::string::npos);
  const auto bad =
      run_ingot(ChatOnTerminal::arguments(tiny_model(), {"--session", "a b"}), options);
  CHECK(bad.status == 2);
  write_file(home / "ingot/sessions/torn.session", "x");
  CHECK(run_ingot(ChatOnTerminal::arguments(tiny_model(), {"--session", "torn"}), options).status ==
        2);
}

TEST_CASE("a pipe that closes saves what was answered", "[cpu][cli]") {
  const TempDir home;
  ProgramOptions options;
  options.environment = {"HOME=/nonexistent", "TERM=dumb",
                         "XDG_STATE_HOME=" + home.path().string()};
  options.input = "hello\nagain\n";
  options.close_output = true;
  const auto ran = run_ingot({"chat", "--model", tiny_model(), "--device", "cpu", "--temperature",
                              "0", "--max-tokens", "4"},
                             options);
  CHECK(ran.status == 141);
  CHECK(ran.err.empty());
  const auto saved = ingot::read_session(only_session(home.path()));
  REQUIRE(saved);
  CHECK(saved->messages.size() == 2);
}
