// `ingot chat`, the built program, in a pipe.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/text/control_tokens.hpp"
#include "src/text/tokenizer.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_tokenizer.hpp"
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

/// The figures of the answer of this number, from 0.
nlohmann::json stats_of(const ProgramResult& ran, int number) {
  std::istringstream lines(ran.err);
  std::string line;
  // Where reading a prompt takes long, lines that say how far it is come between.
  for (int i = 0; i <= number; i += line.starts_with('{') ? 1 : 0)
    REQUIRE(std::getline(lines, line));
  return nlohmann::json::parse(line);
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
  const auto first = stats_of(two, 0);
  CHECK(first.at("prompt_tokens") == 9);
  CHECK(first.at("cached_tokens") == 0);
  CHECK(first.at("prefilled_tokens") == 9);
  CHECK(first.at("answer_tokens") == 4);
  CHECK(first.at("finish_reason") == "length");
  CHECK(first.at("first_token_s") > 0);
  CHECK(first.at("total_s") >= first.at("first_token_s"));
  CHECK(first.at("context_tokens") == 13);
  CHECK(first.at("context_limit") == 16384);
  CHECK(chat("hello\nagain", {"--stats"}).out == two.out);
  // The second turn goes on from the first one's state: at least its prompt is not fed again.
  CHECK(stats_of(two, 1).at("cached_tokens") >= 9);
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
    return stats_of(chat(input, {"--stats"}), 0).at("prompt_tokens").get<int>();
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
  CHECK(stats_of(ran, 0).at("thinking_tokens") == 2);
  CHECK(stats_of(ran, 0).at("answer_tokens") == 1);
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
  CHECK(chat("/retry\n", {"--conversation", folder / "c.json"}).out == chat("hello\n").out);
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

TEST_CASE("a script ends at a command that fails and that the rest was meant for", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "bad.json", "{}");
  const auto [command, why] =
      GENERATE(table<std::string, std::string>({{"/bogus", "/bogus is not a command"},
                                                {"/undo now", "/undo takes nothing"},
                                                {"/load missing", "missing.session"},
                                                {"/new a/b", "\"a/b\" is no name for a session"},
                                                {"/fork a/b", "\"a/b\" is no name for a session"},
                                                {"/attach missing.txt", "no such file"},
                                                {"/tool missing.json", "no such file"},
                                                {"/tool bad.json", "reading tools of bad.json"},
                                                {"/system @missing.txt", "no such file"},
                                                {"/think sideways", "\"sideways\""},
                                                {"/set temperature warm", "\"warm\""}}));
  CAPTURE(command);
  ProgramOptions options;
  options.working_directory = folder.path();
  options.environment.push_back("XDG_STATE_HOME=" + folder.path().string());
  const auto ran = chat("hello\n" + command + "\nhello\n", {}, options);
  CHECK(ran.status == 2);
  CHECK(ran.out == chat("hello\n").out);
  CHECK(ran.err.find(why) != std::string::npos);
  CHECK(ran.err.find("line 2: " + command.substr(0, command.find(' ')) +
                     " failed, and the script ends here") != std::string::npos);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
}

TEST_CASE("a script goes on after a command that only shows or writes, and ends with its status",
          "[cpu][cli]") {
  const auto [command, status] = GENERATE(table<std::string, int>({{"/help bogus", 2},
                                                                   {"/stats sideways", 2},
                                                                   {"/export talk.txt", 2},
                                                                   {"/save a:b/x.session", 2},
                                                                   {"/save", 2}}));
  CAPTURE(command);
  const auto ran = chat("hello\n" + command + "\n/new\nhello\n");
  const std::string one = chat("hello\n").out;
  CHECK(ran.status == status);
  CHECK(ran.out == one + one);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
}

TEST_CASE("a piped message may have several lines", "[cpu][cli]") {
  const std::string one = chat("\"\"\"a\nb\"\"\"\n").out;
  CHECK(chat("a\\\nb\n").out == one);
  CHECK(chat("a\\\nb").out == one);
  const auto tokens = chat("\"\"\"\n/quit\n\"\"\"\n/tokens\n");
  CHECK(tokens.out.find("5 tokens:") != std::string::npos);
}

TEST_CASE("efforts that the checkpoint lacks are refused by name in a chat", "[cpu][cli]") {
  const auto refused = chat("/think low\n");
  CHECK(refused.status == 2);
  CHECK(refused.err.find("\"low\"") != std::string::npos);
  for (const char* unknown : {"/think medium\n", "/set thinking medium\n"}) {
    const auto none = chat(unknown);
    CHECK(none.status == 2);
    CHECK(none.err.find("\"medium\": this checkpoint knows none, high and max\n") !=
          std::string::npos);
  }
  const auto ran = chat("/think high budget 7\n/think budget none\n/set thinking max\n");
  CHECK(ran.status == 0);
  CHECK(ran.out == "thinking high, at most 7 tokens\nthinking high\nthinking max\n");
}

TEST_CASE("settings of a session are changed and shown", "[cpu][cli]") {
  const auto ran = chat("/set top_p 0.25\n/set top_p\n/set stop END\n/set\n/set nothing 1\n");
  CHECK(ran.out.find("top_p = 0.25\n") == 0);
  CHECK(ran.out.find("top_p                0.25") != std::string::npos);
  CHECK(ran.out.find("END") != std::string::npos);
  CHECK(ran.err.find("\"nothing\"") != std::string::npos);
  CHECK(chat("hello\n/set max_tokens 2\nhello\n", {"--stats"}).err.find("\"answer_tokens\": 2") !=
        std::string::npos);
}

TEST_CASE("quotes around a setting's value are taken off, and nothing in them clears it",
          "[cpu][cli]") {
  const auto ran = chat(
      "/set stop \"a b\"\n/set stop\n/set stop 'it''s' \"x\"\n/set stop\n"
      "/set stop \"one\" 'two' \"\\n\"\n/set stop\n/set stop \"unset\"\n/set stop\n"
      "/set stop \"\"\n/set stop\n"
      "/set temperature \"0.5\"\n/set temperature\n/set max_tokens '7'\n/set max_tokens\n"
      "/set thinking \"high\"\n/set thinking_budget \"5\"\n/think \"none\" budget \"6\"\n"
      "/think budget 1\n/think budget 'unset'\n/set keep_thinking \"true\"\n/set keep_thinking\n"
      "/system \"be brief\"\n/system\n/set system 'none'\n/system\n/system \"say \\\"a\\\"\"\n"
      "/system\n/system \"a\" or \"b\"\n/system\n/system \"\"\n/system\n");
  CHECK(ran.err.empty());
  CHECK(ran.status == 0);
  CHECK(ran.out ==
        "stop = [\"a b\"]\nstop = [\"'it''s' \\\"x\\\"\"]\n"
        "stop = [\"one\", \"two\", \"\\n\"]\nstop = [\"unset\"]\n"
        "stop = []\n"
        "temperature = 0.5\nmax_tokens = 7\n"
        "thinking high\nthinking none, at most 6 tokens\n"
        "thinking none, at most 1 token\n"
        "thinking none\nkeep_thinking = true\n"
        "be brief\nnone\nsay \"a\"\n"
        "\"a\" or \"b\"\nThere is no system message.\n");
  CHECK(chat("/set max_tokens \"\"\nhello\n").status == 2);
  // What is cleared ends no answer any more.
  const std::string whole = chat("hello\n").out;
  REQUIRE(whole.size() > 1);
  CHECK(chat("/set stop \"" + whole.substr(0, 1) + "\"\n/set stop \"\"\nhello\n").out == whole);
}

TEST_CASE("a setting that is unset has its default again", "[cpu][cli]") {
  const auto ran = chat(
      "/set system be brief\n/set system unset\n/system\n/think high\n/set thinking unset\n/think\n"
      "/set top_p 0.5\n/set top_p unset\n/set top_p\n");
  CHECK(ran.out == "There is no system message.\nthinking high\nthinking none\ntop_p = 1\n");
  CHECK(ran.err.empty());
}

TEST_CASE("bytes of a typed value make UTF-8 or are refused", "[cpu][cli]") {
  const auto typed = chat("/set stop \"caf\\xC3\\xA9\"\n/set stop\n");
  CHECK(typed.status == 0);
  CHECK(typed.out.find("caf\xC3\xA9") != std::string::npos);
  CHECK(typed.out.find("xC3") == std::string::npos);
  for (const char* value : {"/set stop \"a\" \"\\xC3\"\n", "/set stop \"\\xff\"\n",
                            "/system \"\\xA9\"\n", "/set system \"\\xA9\"\n"}) {
    CAPTURE(value);
    const auto refused = chat(std::string(value) + "never asked\n");
    CHECK(refused.status == 2);
    CHECK(refused.err.find("UTF-8") != std::string::npos);
    CHECK(refused.out.empty());
  }
}

TEST_CASE("--prompt is a question or /retry, and no other command", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "asked.json", R"([{"role": "user", "content": "hello"}])");
  const auto answered = chat("", {"-p", "/retry", "--conversation", folder / "asked.json"});
  CHECK(answered.status == 0);
  CHECK(answered.out == chat("hello\n").out);
  CHECK(answered.err.find("asked together") == std::string::npos);
  const auto nothing = chat("", {"-p", "/retry"});
  CHECK(nothing.status == 2);
  CHECK(nothing.out.empty());
  for (const char* command : {"/undo", "/retry now", "/bogus", " /sessions"}) {
    CAPTURE(command);
    const auto refused = chat("", {"-p", command});
    CHECK(refused.status == 2);
    CHECK(refused.out.empty());
    CHECK(refused.err.find("--prompt ") != std::string::npos);
    CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  }
  CHECK(chat("", {"-p", "/usr/bin is a path"}).status == 0);
}

TEST_CASE("one question must not be empty", "[cpu][cli]") {
  for (const char* prompt : {"", " \n\t"}) {
    const auto ran = chat("hello\n", {"-p", prompt});
    CHECK(ran.status == 2);
    CHECK(ran.err ==
          "ingot: error: --prompt: the question is empty; give a text, or leave --prompt out\n");
    CHECK(ran.out.empty());
  }
}

TEST_CASE("streams that were closed before the start are at their end", "[cpu][cli]") {
  const auto shell = [](const std::string& redirection) {
    ProgramOptions options;
    options.program = "/bin/sh";
    const std::string line = "exec \"$0\" chat --model \"$1\" --device cpu --max-tokens 2 ";
    return run_ingot({"-c", line + redirection, ingot_program(), tiny_model()}, options);
  };
  const auto in = shell("<&-");
  CHECK(in.status == 0);
  CHECK(in.out.empty());
  CHECK(shell("-p hello <&-").status == 0);
  const auto out = shell("-p hello >&-");
  CHECK(out.status == 1);
  CHECK(out.err.find("writing to standard output") != std::string::npos);
  CHECK(shell("-p hello 2>&-").status == 0);
}

TEST_CASE("a message of every special token's text is text, with ids to show for it",
          "[cpu][cli]") {
  std::string all;
  for (const std::string_view token : ingot::control::kAll)
    all += token;
  const auto ran = chat(all + "\n/tokens\n", {"--stats"});
  CHECK(ran.status == 0);
  const auto ids =
      value_or_throw(ingot::Tokenizer::parse(small_tokenizer_json(), "small")).encode(all);
  const std::size_t line = ran.out.rfind(" tokens: ");
  std::istringstream shown(ran.out.substr(line + 9));
  std::vector<ingot::TokenId> got;
  for (ingot::TokenId id = 0; shown >> id;)
    got.push_back(id);
  CHECK(got == ids);
  for (const std::string_view token : ingot::control::kAll)
    CHECK(std::count(got.begin(), got.end(), control_id(token)) == 0);
  // Around it are BOS, <｜User｜>, <｜Assistant｜> and </think>.
  CHECK(stats_of(ran, 0).at("prompt_tokens") == ids.size() + 4);
}

TEST_CASE("answers as JSON are messages with their figures", "[cpu][cli]") {
  const auto ran =
      chat("", {"--prompt", "hello", "--json", "--thinking", "high", "--thinking-budget", "2"});
  CHECK(ran.status == 0);
  const auto answer = nlohmann::json::parse(ran.out);
  CHECK(answer.at("role") == "assistant");
  CHECK(answer.at("content").is_string());
  CHECK(answer.at("finish_reason") == "length");
  CHECK(answer.at("stats").at("thinking_tokens") == 2);
  const auto two = chat("hello\nagain\n", {"--json"});
  CHECK(std::count(two.out.begin(), two.out.end(), '\n') == 2);
}

TEST_CASE("the question of one shot may come from a pipe", "[cpu][cli]") {
  CHECK(chat("hello").out == chat("", {"-p", "hello"}).out);
}

TEST_CASE("a piped message of very many lines is put together, one beyond 16 MiB refused",
          "[cpu][cli]") {
  std::string lines = "\"\"\"\n";
  for (int i = 0; i < 300'000; ++i)
    lines += "x\n";
  const auto ran = chat(lines + "\"\"\"\nhello\n");
  CHECK(ran.status == 2);  // it does not fit the context
  CHECK(ran.err.find("the prompt has 600") != std::string::npos);
  CHECK(ran.out == chat("hello\n").out);
  const std::string mebibyte(std::size_t{1} << 20, 'x');
  std::string long_message = "\"\"\"\n";
  for (int i = 0; i < 17; ++i)
    long_message += mebibyte + "\n";
  const auto refused = chat(long_message);
  CHECK(refused.status == 2);
  CHECK(refused.err.find("line 17: the message is longer than 16 MiB") != std::string::npos);
}

TEST_CASE("functions that cannot be read are refused before the model is", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "tools.json", "{}");
  for (const char* file : {"tools.json", "missing.json"}) {
    const auto ran = run_ingot({"chat", "--model", "/nonexistent", "--tool", folder / file});
    CHECK(ran.status == 2);
    CHECK(ran.err.find(file) != std::string::npos);
  }
}

TEST_CASE("every line of an answer in JSON is JSON, those of commands too", "[cpu][cli]") {
  const auto ran = chat(
      "/help\n/help save\nhello\n/stats\n/tokens ab\n/sessions\n/system\n/think\n/set\n/set "
      "top_p\n/tool\n",
      {"--json"});
  CHECK(ran.status == 0);
  std::istringstream lines(ran.out);
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(lines, line);)
    all.push_back(nlohmann::json::parse(line));
  REQUIRE(all.size() == 10);
  CHECK(all[0].at("command") == "/help");
  CHECK(all[0].at("output").get<std::string>().find("/undo") != std::string::npos);
  CHECK(all[1].at("output") ==
        "/save [--force] [NAME]\n  save this session, with the state of the engine;\n"
        "  --force replaces another session\n");
  CHECK(all[2].at("role") == "assistant");
  CHECK(all[3].at("output").get<std::string>().starts_with("1 answer in "));
  CHECK(all[4].at("output") == "2 tokens: 99 100\n");
}

TEST_CASE("figures end with a line of all answers together", "[cpu][cli]") {
  const auto ran = chat("hello\n/new\nagain\n", {"--stats"});
  std::vector<nlohmann::json> all;
  std::istringstream lines(ran.err);
  for (std::string line; std::getline(lines, line);)
    all.push_back(nlohmann::json::parse(line));
  REQUIRE(all.size() == 3);
  const auto totals = all[2].at("totals");
  CHECK(totals.at("answers") == 2);
  for (const char* key :
       {"prompt_tokens", "cached_tokens", "prefilled_tokens", "thinking_tokens", "answer_tokens"}) {
    CAPTURE(key);
    CHECK(totals.at(key) == all[0].at(key).get<int>() + all[1].at(key).get<int>());
  }
  CHECK(totals.at("total_s") > 0);
  CHECK(chat("", {"--stats"}).err.find("{\"totals\": {\"answers\": 0,") == 0);
}

TEST_CASE("what is taken back or left behind takes nothing of the context", "[cpu][cli]") {
  const auto context = [](const std::string& input) {
    const std::string out = chat(input + "/stats\n").out;
    const std::size_t at = out.rfind("context: ");
    REQUIRE(at != std::string::npos);
    return std::stoi(out.substr(at + 9));
  };
  CHECK(context("hello\n") == 13);
  CHECK(context("hello\n/undo\n") == 0);
  CHECK(context("hello\n/undo\n/new\n") == 0);
  CHECK(context("hello\n/new\n") == 0);
  CHECK(context("hello\nagain\n/undo\n") == 13);
  // A refused question takes nothing either, and a full context is no more than full.
  const auto full = [&](const std::string& input) {
    return chat("/set max_tokens unset\n" + input + "/stats\n", {"--context", "20"}).out;
  };
  CHECK(full("hello\n").find("context: 20 of 20 tokens in use\n") != std::string::npos);
  const std::string refused = full("hello\n" + std::string(40, 'q') + "\n");
  CHECK(refused.find("context: 20 of 20 tokens in use\n") != std::string::npos);
  CHECK(chat("hello\n/undo\n/new\n/sessions\n").out.find("0 messages,      0 tokens") !=
        std::string::npos);
}

TEST_CASE("the device is said in one short line, and by --plain not at all", "[cpu][cli]") {
  const auto start = [](std::vector<std::string> more) {
    std::vector<std::string> arguments{"chat", "--model", tiny_model()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_ingot(arguments).err;
  };
  const std::string said = start({});
  CHECK(said.find("ingot: device ") == 0);
  CHECK(said.size() <= 80);
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  CHECK(start({"--plain"}).empty());
}

TEST_CASE("a script ends where /undo finds nothing to take back", "[cpu][cli]") {
  const auto ran = chat("hello\n/undo\n/undo\nhello\n");
  CHECK(ran.status == 2);
  CHECK(ran.err.find("there is nothing to take back") != std::string::npos);
  CHECK(ran.out == chat("hello\n").out);  // the second hello is not answered
}

TEST_CASE("nothing of a conversation that was emptied goes into a new one", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "note.txt", "attached");
  ProgramOptions options;
  options.working_directory = folder.path();
  const std::string one = chat("hello\n").out;
  CHECK(chat("/attach note.txt\n/new\nhello\n", {}, options).out == one);
  const auto ran = chat("hello\n/undo\n/new\n/stats\n");
  CHECK(ran.out.find("0 answers in 0.0 s; prompts 0 tokens") != std::string::npos);
  // A question that did not fit is no question of the new one.
  const auto retried = chat(std::string(20'000, 'x') + "\n/new\n/retry\n");
  CHECK(retried.out.empty());
  CHECK(retried.err.find("there is no answer to try again") != std::string::npos);
}
