// Which conversation and which settings `ingot chat` begins with, where the command line, a saved
// session and a file of messages all have something to say.
#include <csignal>

#include "src/chat/session_file.hpp"
#include "tests/src/cli/chat_on_terminal.hpp"
#include "tests/support/run_program.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

struct Home {
  ProgramResult chat(std::vector<std::string> more, std::string_view input) const {
    ProgramOptions options;
    options.environment = {"HOME=" + folder.path().string(), "TERM=dumb",
                           "XDG_STATE_HOME=" + folder.path().string()};
    options.working_directory = folder.path();
    options.input = input;
    std::vector<std::string> arguments{"chat", "--model", tiny_model(), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_ingot(arguments, options);
  }
  fs::path session(const std::string& name) const {
    return folder / ("ingot/sessions/" + name + ".session");
  }

  TempDir folder;
};

std::vector<ingot::ChatMessage> messages_in(const fs::path& file) {
  return value_or_throw(ingot::read_session(file)).messages;
}

bool says(const ProgramResult& ran, std::string_view words) {
  return ran.err.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a file of messages takes no saved session's place", "[cpu][cli]") {
  const Home home;
  write_file(home.folder / "c.json", R"([{"role": "user", "content": "from the file"}])");
  const std::string name = GENERATE("plan", "./plan.session");
  const fs::path file = name == "plan" ? home.session(name) : home.folder / "plan.session";
  CAPTURE(name);
  // A new one begins with it.
  const std::vector<std::string> both{"--session", name,           "--conversation",
                                      "c.json",    "--max-tokens", "4"};
  CHECK(home.chat(both, "/retry\n").status == 0);
  REQUIRE(messages_in(file).size() == 2);
  CHECK(messages_in(file)[0].content == "from the file");
  const std::string before = read_file(file);
  auto again = home.chat(both, "hello\n");
  CHECK(again.status == 2);
  CHECK(again.out.empty());
  for (const auto& word : {"--session " + name, std::string("--conversation c.json"),
                           file.filename().string(), std::string("leave --conversation out")}) {
    CAPTURE(word);
    CHECK(says(again, word));
  }
  CHECK(read_file(file) == before);
  // What is no session is not replaced either.
  write_file(file, "mine");
  CHECK(home.chat(both, "hello\n").status == 2);
  CHECK(read_file(file) == "mine");
}

TEST_CASE("a session may be a path, and a name that is none is refused before the model is read",
          "[cpu][cli]") {
  const Home home;
  fs::create_directories(home.folder / "talks");
  const std::vector<std::string> more{"--max-tokens", "2", "--temperature", "0", "--session"};
  const auto with = [&](const std::string& name) {
    auto arguments = more;
    arguments.push_back(name);
    return arguments;
  };
  const std::string path = GENERATE("talks/a b.session", "./one", "~/talks/home.session");
  CAPTURE(path);
  const fs::path file = path[0] == '~' ? home.folder / path.substr(2) : home.folder / path;
  CHECK(home.chat(with(path), "hello\n").status == 0);
  CHECK(messages_in(file).size() == 2);
  CHECK(home.chat(with(path), "again\n").status == 0);
  CHECK(messages_in(file).size() == 4);
  for (const char* wrong : {"a b", "", ".hidden", "none/x.session"}) {
    CAPTURE(wrong);
    const auto refused = run_ingot({"chat", "--model", "/nonexistent", "--session", wrong});
    CHECK(refused.status == 2);
    CHECK(!says(refused, "/nonexistent"));
  }
}

TEST_CASE("flags go before what a session was saved with, and say so", "[cpu][cli]") {
  const Home home;
  const std::vector<std::string> first{"--session",    "plan", "--temperature", "0",
                                       "--max-tokens", "4",    "--top-p",       "0.5",
                                       "--thinking",   "none"};
  CHECK(home.chat(first, "hello\n").status == 0);
  const std::string ask = "/set temperature\n/set max_tokens\n/set top_p\n/think\n/set seed\n";
  // Without flags it is as it was saved, without a word.
  const auto as_saved = home.chat({"--session", "plan"}, ask);
  CHECK(as_saved.out ==
        "temperature = 0\nmax_tokens = 4\ntop_p = 0.5\nthinking none\nseed = unset\n");
  CHECK(as_saved.err.empty());
  const auto changed = home.chat({"--session", "plan", "--temperature", "0.25", "--max-tokens", "2",
                                  "--thinking", "high", "--seed", "7", "--top-p", "0.5"},
                                 ask + "hello\n");
  CHECK(changed.status == 0);
  CHECK(changed.out.starts_with(
      "temperature = 0.25\nmax_tokens = 2\ntop_p = 0.5\nthinking high\nseed = 7\n"));
  for (const char* line :
       {"the session plan: --temperature goes before what was saved, temperature = 0\n",
        "--max-tokens goes before what was saved, max_tokens = 4\n",
        "--thinking goes before what was saved, thinking = \"none\"\n",
        "--seed goes before what was saved, seed = unset\n"}) {
    CAPTURE(line);
    CHECK(says(changed, line));
  }
  CHECK(!says(changed, "--top-p"));
  // That is what it is saved with now.
  CHECK(home.chat({"--session", "plan"}, ask).out ==
        changed.out.substr(0, changed.out.find("7\n") + 2));
}

TEST_CASE("a system message of the command line goes before a saved one", "[cpu][cli]") {
  const Home home;
  const std::vector<std::string> first{"--session",    "plan", "--system",      "be brief",
                                       "--max-tokens", "4",    "--temperature", "0"};
  CHECK(home.chat(first, "hello\n").status == 0);
  CHECK(home.chat(first, "/system\n").err.empty());
  const auto changed = home.chat({"--session", "plan", "--system", "be long", "--stats"},
                                 "/system\nhello\n/system\n");
  CHECK(changed.out.starts_with("be long\n"));
  CHECK(says(changed,
             "--system goes before what was saved, system = \"be brief\"; all of it is fed "
             "again at the next turn"));
  CHECK(says(changed, "\"cached_tokens\": 1,"));  // BOS alone
  const auto messages = messages_in(home.session("plan"));
  CHECK(messages.size() == 5);
  CHECK(messages[0].content == "be long");
  // The same with a file of messages.
  write_file(home.folder / "c.json",
             R"([{"role": "system", "content": "of the file"}, {"role": "user", "content": "x"}])");
  const auto of_file = home.chat({"--conversation", "c.json", "--max-tokens", "1"}, "/system\n");
  CHECK(of_file.out == "of the file\n");
  const auto of_flag =
      home.chat({"--conversation", "c.json", "--max-tokens", "1", "--system", "mine"}, "/system\n");
  CHECK(of_flag.out == "mine\n");
  CHECK(says(of_flag, "--system goes before the system message of c.json"));
}

TEST_CASE("a session that /load brings has its own settings, and says where flags differ",
          "[cpu][cli]") {
  const Home home;
  CHECK(home.chat({"--session", "plan", "--temperature", "0.5", "--max-tokens", "4"}, "hello\n")
            .status == 0);
  const auto ran =
      home.chat({"--temperature", "0", "--max-tokens", "4"}, "/load plan\n/set temperature\n");
  CHECK(ran.status == 0);
  CHECK(ran.out == "temperature = 0.5\n");
  CHECK(says(ran, "plan has temperature = 0.5, which goes before --temperature; /set changes it."));
  CHECK(!says(ran, "max_tokens"));
}

TEST_CASE("a conversation whose last question has no answer is never answered by itself",
          "[cpu][cli]") {
  const Home home;
  write_file(home.folder / "c.json", R"([{"role": "user", "content": "hello"}])");
  const std::vector<std::string> four{"--max-tokens", "4", "--temperature", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), four.begin(), four.end());
    return more;
  };
  // A file of messages keeps its question, in a session that is named.
  const auto begun = home.chat(with({"--session", "plan", "--conversation", "c.json"}), "");
  CHECK(begun.status == 0);
  CHECK(begun.out.empty());
  REQUIRE(messages_in(home.session("plan")).size() == 1);
  const std::string waits = "the last question has no answer yet: /retry answers it";
  CHECK(says(begun, waits));
  // Every way in is the same: nothing is said until somebody asks.
  const std::string alone = home.chat(four, "hello\n").out;
  const std::string both = home.chat(four, "\"\"\"\nhello\n\nmore\n\"\"\"\n").out;
  REQUIRE(alone != both);
  struct Way {
    std::vector<std::string> flags;
    std::string input;
  };
  for (const Way& way : {Way{{"--conversation", "c.json"}, ""}, Way{{"--session", "plan"}, ""},
                         Way{{}, "/load plan\n"}, Way{{}, "/load plan\n/fork copy\n"}}) {
    CAPTURE(way.flags, way.input);
    const auto nothing = home.chat(with(way.flags), way.input + "/sessions\n");
    CHECK(nothing.status == 0);
    CHECK(nothing.out.starts_with(way.input.empty() ? "*" : ""));
    CHECK(nothing.out.find("1 message,") != std::string::npos);
    CHECK(says(nothing, waits));
    fs::remove(home.session("copy"));
  }
  for (const Way& way : {Way{{"--conversation", "c.json"}, ""}, Way{{"--session", "plan"}, ""},
                         Way{{}, "/load plan\n"}}) {
    CAPTURE(way.flags, way.input);
    const std::string before = read_file(home.session("plan"));
    CHECK(home.chat(with(way.flags), way.input + "/retry\n").out == alone);
    write_file(home.session("plan"), before);
    // Another question is asked together with it, in one turn as the chat format has it.
    CHECK(home.chat(with(way.flags), way.input + "more\n").out == both);
    write_file(home.session("plan"), before);
    if (!way.input.empty()) continue;
    auto flags = with(way.flags);
    flags.insert(flags.end(), {"-p", "more"});
    const auto one = home.chat(flags, "");
    CHECK(one.out == both);
    CHECK(says(one, "the last question has no answer yet; it is asked together with the new one"));
    write_file(home.session("plan"), before);
  }
}

TEST_CASE("a conversation that is longer than the context is loaded, and said to be",
          "[cpu][cli]") {
  const Home home;
  const std::vector<std::string> flags{"--max-tokens", "4", "--temperature", "0"};
  CHECK(home.chat({"--session", "plan", "--max-tokens", "4", "--temperature", "0"},
                  std::string(60, 'q') + "\n")
            .status == 0);
  const auto ran = home.chat({"--session", "plan", "--context", "40"}, "/stats\nmore\n");
  CHECK(says(ran, "the conversation takes 68 tokens, and the context holds 40"));
  CHECK(ran.out.find("context: 40 tokens hold no conversation of 68\n") != std::string::npos);
  CHECK(ran.status == 2);
  CHECK(messages_in(home.session("plan")).size() == 2);
}
