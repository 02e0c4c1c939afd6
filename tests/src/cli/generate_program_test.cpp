// `ingot generate`, the built program, on files as users have them.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "src/text/tokenizer.hpp"
#include "src/weights/synth.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string line(std::string_view id, std::string_view fields = "\"max_tokens\": 3") {
  return fmt::format(
      "{{\"custom_id\": \"{}\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
      "{{\"messages\": [{{\"role\": \"user\", \"content\": \"hi\"}}], {}}}}}\n",
      id, fields);
}

ProgramResult generate(const fs::path& in, const fs::path& out, std::vector<std::string> more = {},
                       const ProgramOptions& options = {}) {
  std::vector<std::string> arguments{"generate", "--model", tiny_model(), "--input", in,
                                     "--output", out,       "--device",   "cpu"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_ingot(arguments, options);
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one);)
    lines.push_back(json::parse(one));
  return lines;
}

}  // namespace

TEST_CASE("generate answers a file of good lines with status 0", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a") + "\n" + line("b"));
  const auto ran = generate(folder / "in.jsonl", folder / "out.jsonl");
  CHECK(ran.status == 0);
  CHECK(ran.out.empty());
  CHECK(ran.err.find("2 answered, 0 failed") != std::string::npos);
  CHECK(ran.err.find("1 blank line skipped") != std::string::npos);
  const auto lines = lines_of(read_file(folder / "out.jsonl"));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["custom_id"] == "a");
  CHECK(lines[0]["response"]["body"]["model"] == "tiny");
  CHECK(!fs::exists(folder / "out.jsonl.partial"));
}

TEST_CASE("generate answers the good lines among bad ones with status 1", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", "null\n" + line("a") + line("a") + "[1,2]\n\xFF\n" + line("b"));
  const auto ran = generate(folder / "in.jsonl", folder / "out.jsonl", {"--order", "input"});
  CHECK(ran.status == 1);
  const auto lines = lines_of(read_file(folder / "out.jsonl"));
  REQUIRE(lines.size() == 6);
  for (const std::size_t good : {1u, 5u})
    CHECK(lines[good]["error"].is_null());
  for (const std::size_t bad : {0u, 2u, 3u, 4u})
    CHECK(lines[bad]["error"].is_object());
}

TEST_CASE("an effort that the checkpoint lacks fails its line alone, and a flag of it the run",
          "[cpu][cli]") {
  const TempDir folder;
  const std::string knows = ": this checkpoint knows none, high and max";
  const std::string why = "thinking effort \"low\"" + knows;
  write_file(folder / "in.jsonl",
             line("a", "\"max_tokens\": 1, \"reasoning_effort\": \"minimal\"") +
                 line("b", "\"max_tokens\": 1, \"reasoning_effort\": \"high\""));
  const auto ran = generate(folder / "in.jsonl", folder / "out", {"--order", "input"});
  CHECK(ran.status == 1);
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["custom_id"] == "a");
  CHECK(lines[0]["error"]["message"] ==
        "line 1: body.reasoning_effort: thinking effort \"minimal\": for this checkpoint a request "
        "may say none, low, medium, high, xhigh and max");
  CHECK(lines[1]["error"].is_null());
  const auto flag = generate(folder / "in.jsonl", folder / "new", {"--thinking", "low"});
  CHECK(flag.status == 2);
  CHECK(flag.err.find(why) != std::string::npos);
  CHECK(!fs::exists(folder / "new"));
  write_file(folder / "c.toml", "[chat]\nthinking = \"low\"\n");
  CHECK(generate(folder / "in.jsonl", folder / "new", {"--config", folder / "c.toml"}).status == 2);
  write_file(folder / "chat.json", R"([{"role": "user", "content": "hi"}])");
  const auto tokens = run_ingot(
      {"tokens", "--model", tiny_model(), "--messages", folder / "chat.json", "--thinking", "low"});
  CHECK(tokens.status == 2);
  CHECK(tokens.err.find(why) != std::string::npos);
}

TEST_CASE("generate writes the same file twice", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 6; ++i) {
    input += line(std::to_string(i), fmt::format("\"max_tokens\": {}", 2 + i));
  }
  write_file(folder / "in.jsonl", input);
  REQUIRE(generate(folder / "in.jsonl", folder / "one", {"--order", "input"}).status == 0);
  REQUIRE(generate(folder / "in.jsonl", folder / "two",
                   {"--max-batch", "2", "--prefill-chunk", "3", "--threads", "1", "--longest-first",
                    "--order", "input"})
              .status == 0);
  CHECK(read_file(folder / "one") == read_file(folder / "two"));
  REQUIRE(
      generate(folder / "in.jsonl", folder / "three", {"--seed", "5", "--order", "input"}).status ==
      0);
  CHECK(read_file(folder / "one") != read_file(folder / "three"));
}

TEST_CASE("generate takes plain text and writes plain text", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.txt", "one\n\ntwo");
  const auto ran =
      generate(folder / "in.txt", "-", {"--text", "--max-tokens", "2", "--temperature", "0"});
  CHECK(ran.status == 0);
  const auto count = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  // Line by line beside the input, unless that is not wanted.
  CHECK(count(ran.out) == 3);
  CHECK(ran.out.find("\n\n") != std::string::npos);
  CHECK(ran.err.find("1 blank line left blank") != std::string::npos);
  const auto finish =
      generate(folder / "in.txt", "-",
               {"--text", "--order", "finish", "--max-tokens", "2", "--temperature", "0"});
  CHECK(count(finish.out) == 2);
  CHECK(finish.err.find("1 blank line skipped") != std::string::npos);
  write_file(folder / "dos.txt", "one\r\n\r\ntwo\r\n");
  CHECK(generate(folder / "dos.txt", "-", {"--text", "--max-tokens", "2", "--temperature", "0"})
            .out == ran.out);
  const auto objects = generate(folder / "in.txt", "-", {"--max-tokens", "2"});
  const auto lines = lines_of(objects.out);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1]["custom_id"] == "line-3");
}

TEST_CASE("generate reads standard input", "[cpu][cli]") {
  ProgramOptions options;
  const std::string input = line("a");
  options.input = input;
  const auto ran = generate("-", "-", {"--format", "jsonl"}, options);
  CHECK(ran.status == 0);
  CHECK(lines_of(ran.out).size() == 1);
}

TEST_CASE("generate refuses what it cannot start with status 2 and writes nothing", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a"));
  const auto refused = [&](const fs::path& in, const fs::path& out, std::string_view word,
                           std::vector<std::string> more = {}) {
    const auto ran = generate(in, out, std::move(more));
    CAPTURE(in, out, ran.err);
    CHECK(ran.status == 2);
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
    CHECK(ran.err.find(word) != std::string::npos);
    if (!kSanitized) CHECK(ran.peak_bytes < 100'000'000);
  };
  refused(folder / "missing.jsonl", folder / "out", "No such file");
  refused(folder.path(), folder / "out", "folder", {"--format", "jsonl"});
  refused(folder / "in.jsonl", folder / "no/out", "No such file");
  write_file(folder / "in.dat", line("a"));
  refused(folder / "in.dat", folder / "out", "--format");
  write_file(folder / "old", "old\n");
  refused(folder / "in.jsonl", folder / "old", "--force");
  refused(folder / "in.jsonl", folder / "out", "--context", {"--context", "1"});
  const auto no_model = run_ingot({"generate", "--model", "/nonexistent", "--input",
                                   folder / "in.jsonl", "--output", folder / "out"});
  CHECK(no_model.status == 2);
  CHECK(read_file(folder / "old") == "old\n");
  CHECK(!fs::exists(folder / "out"));
  CHECK(!fs::exists(folder / "out.partial"));
}

TEST_CASE("generate refuses settings that no line could use, and starts nothing", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a"));
  const std::vector<std::vector<std::string>> bad{
      {"--stop", ""}, {"--stop", std::string(2000, 'x')}, {"--thinking", "low"}, {"--tp", "7"}};
  for (const auto& more : bad) {
    CAPTURE(more);
    const auto ran = generate(folder / "in.jsonl", folder / "out.jsonl", more);
    CHECK(ran.status == 2);
    CHECK(!fs::exists(folder / "out.jsonl"));
    CHECK(!fs::exists(folder / "out.jsonl.partial"));
  }
}

TEST_CASE("generate that answers no line leaves no partial file behind", "[cpu][cli]") {
  const TempDir folder;
  // It opens, and its first read fails.
  const auto ran = generate("/proc/self/mem", folder / "out.jsonl", {"--format", "jsonl"});
  CAPTURE(ran.err);
  CHECK(ran.status != 0);
  CHECK(!fs::exists(folder / "out.jsonl.partial"));
}

TEST_CASE("generate ends without a word where nobody reads its output", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a") + line("b"));
  ProgramOptions options;
  options.close_output = true;
  const auto ran = generate(folder / "in.jsonl", "-", {"--quiet"}, options);
  CAPTURE(ran.err);
  CHECK(ran.status == 141);
  CHECK(ran.err.find("error") == std::string::npos);
}

TEST_CASE("generate refuses output = input, also by symlink", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a"));
  fs::create_symlink(folder / "in.jsonl", folder / "link");
  for (const char* name : {"in.jsonl", "link"}) {
    for (const bool force : {false, true}) {
      const auto ran =
          generate(folder / "in.jsonl", folder / name,
                   force ? std::vector<std::string>{"--force"} : std::vector<std::string>{});
      CHECK(ran.status == 2);
      CHECK(ran.err.find("same file as the input") != std::string::npos);
      CHECK(read_file(folder / "in.jsonl") == line("a"));
    }
  }
}

TEST_CASE("generate refuses a read-only output folder", "[cpu][cli]") {
  const TempDir folder;
  fs::permissions(folder.path(), fs::perms(0755));
  write_file(folder / "in.jsonl", line("a"));
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms(0555));
  ProgramOptions options;
  options.as_nobody = true;
  ProgramResult ran;
  try {
    ran = generate(folder / "in.jsonl", folder / "closed/out", {}, options);
  } catch (const std::runtime_error&) {
    skip("the program is in a folder that only root can enter");
    return;
  }
  CHECK(ran.status == 2);
  CHECK(ran.err.find("Permission denied") != std::string::npos);
  CHECK(fs::is_empty(folder / "closed"));
}

TEST_CASE("generate on a disk that fills up keeps whole lines and overwrites nothing",
          "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 40; ++i)
    input += line(std::to_string(i), "\"max_tokens\": 1");
  write_file(folder / "in.jsonl", input);
  write_file(folder / "out", "old\n");
  ProgramOptions options;
  options.file_size_limit = 3000;
  const auto ran = generate(folder / "in.jsonl", folder / "out", {"--force"}, options);
  CHECK(ran.status == 1);
  CHECK(ran.err.find("File too large") != std::string::npos);
  CHECK(read_file(folder / "out") == "old\n");
  const std::string kept = read_file(folder / "out.partial");
  CHECK(kept.ends_with('\n'));
  const auto lines = lines_of(kept);
  CHECK(lines.size() >= 3);
  CHECK(lines.size() < 40);
}

TEST_CASE("generate on a full device fails and writes nothing", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a"));
  const auto ran = generate(folder / "in.jsonl", "/dev/full");
  CHECK(ran.status == 1);
  CHECK(ran.err.find("No space left") != std::string::npos);
}

TEST_CASE("a second interrupt drops the lines in flight and keeps the finished ones",
          "[cpu][cli]") {
  const TempDir folder;
  std::string input = "null\n" + line("short");
  input += line("endless", "\"max_tokens\": 15000, \"ignore_eos\": true");
  input += line("more", "\"max_tokens\": 15000, \"ignore_eos\": true");
  write_file(folder / "in.jsonl", input);
  ProgramOptions options;
  options.wait_for = "line 1: ";  // with --text, failed lines are told on standard error
  options.then = [&](int process) {
    // Until the short answer is on disk.
    for (int i = 0; i < 500; ++i) {
      if (fs::file_size(folder / "out.partial") > 1) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ::kill(process, SIGINT);
    ::kill(process, SIGTERM);
  };
  const auto ran = generate(folder / "in.jsonl", folder / "out", {"--text"}, options);
  CHECK((ran.status == 130 || ran.status == 143));  // they may arrive in either order
  CHECK(ran.err.find("interrupted: 1 answered, 1 failed") != std::string::npos);
  CHECK(!fs::exists(folder / "out"));
  const std::string kept = read_file(folder / "out.partial");
  CHECK(std::count(kept.begin(), kept.end(), '\n') == 2);
}

TEST_CASE("a line of 17 MiB costs an error object and little memory", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl",
             "{\"custom_id\": \"" + std::string(std::size_t{17} << 20, 'x') + "\"}\n" + line("b"));
  const auto ran = generate(folder / "in.jsonl", folder / "out");
  CHECK(ran.status == 1);
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["error"]["code"] == "line_too_long");
  CHECK(lines[1]["error"].is_null());
  if (!kSanitized) CHECK(ran.peak_bytes < 150'000'000);  // the model runs, too
}

TEST_CASE("a hostile line of 15 MiB is refused within 100 MB beside the model", "[cpu][cli]") {
  const TempDir folder;
  const std::string_view kind = GENERATE("[", "[],", "0,", "{\"a\":", "\"\\u0000", "7", "\"x\":");
  std::string hostile = "[";
  while (hostile.size() < (std::size_t{15} << 20))
    hostile += kind;
  write_file(folder / "in.jsonl", hostile + "\n");
  const auto ran = generate(folder / "in.jsonl", folder / "out");
  CAPTURE(kind);
  CHECK(ran.status == 1);
  CHECK(lines_of(read_file(folder / "out")).at(0)["error"]["code"] == "invalid_json");
  if (!kSanitized) CHECK(ran.peak_bytes < 100'000'000);
}

TEST_CASE("a line of 14 MiB in one field is refused within 100 MB beside the model", "[cpu][cli]") {
  const TempDir folder;
  const std::string huge(std::size_t{14} << 20, 'x');
  const auto [body, word] = GENERATE_REF(table<std::string, std::string>(
      {{R"("messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", )"
        R"("function": {"name": "f", "description": ")" +
            huge + R"(", "parameters": {}}}])",
        "shorten it"},
       {R"("messages": [{"role": "user", "content": ")" + huge + "\"}]", "shorten it"},
       {R"("messages": [{"role": "user", "content": "hi"}], "model": ")" + huge + "\"",
        "body.model has 14680064 bytes: at most 512"}}));
  write_file(folder / "in.jsonl", R"({"custom_id": "a", "url": "/v1/chat/completions", "body": {)" +
                                      body + "}}\n" + line("b"));
  const auto ran = generate(folder / "in.jsonl", folder / "out");
  CHECK(ran.status == 1);
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 2);
  const std::string message = lines[0]["error"]["message"];
  CAPTURE(message.substr(0, 300), ran.peak_bytes);
  CHECK(message.find(word) != std::string::npos);
  CHECK(lines[1]["error"].is_null());
  if (!kSanitized) CHECK(ran.peak_bytes < 100'000'000);
}

TEST_CASE("a line of 15 MiB that holds one broken text is refused within 100 MB beside the model",
          "[cpu][cli]") {
  const std::string_view end = GENERATE("", "\\u12\"}", "\xff\"}", "\", \"custom_id\": 1}");
  std::string hostile = "{\"custom_id\": \"";
  while (hostile.size() < (std::size_t{15} << 20))
    hostile += "\\u00e9";
  const TempDir folder;
  write_file(folder / "in.jsonl", hostile + std::string(end) + "\n");
  const auto ran = generate(folder / "in.jsonl", folder / "out");
  CAPTURE(end);
  CHECK(ran.status == 1);
  CHECK(lines_of(read_file(folder / "out")).at(0)["error"]["code"] == "invalid_json");
  if (!kSanitized) CHECK(ran.peak_bytes < 100'000'000);
}

TEST_CASE("a prompt of 15 MiB is refused within 100 MB beside the model", "[cpu][cli]") {
  const TempDir folder;
  const std::string_view kind = GENERATE("x", "word ", "\\u00e9", "\\n");
  std::string content;
  while (content.size() < (std::size_t{15} << 20))
    content += kind;
  write_file(folder / "in.jsonl",
             "{\"custom_id\": \"a\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": "
             "[{\"role\": \"user\", \"content\": \"" +
                 content + "\"}]}}\n");
  const auto ran = generate(folder / "in.jsonl", folder / "out");
  CAPTURE(kind, ran.err);
  CHECK(ran.status == 1);
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["error"]["message"].get<std::string>().find("--context") != std::string::npos);
  if (!kSanitized) CHECK(ran.peak_bytes < 100'000'000);
}

TEST_CASE("generate at temperature 0 gives the tokens of an independent implementation",
          "[cpu][cli]") {
  // Two right implementations of a model of random weights drift apart by a few per cent of the
  // logits' spread (4.6 here): a lead above this is clear.
  constexpr double kClearLead = 1.0;
  const TempDir folder;
  ingot::SynthOptions synth;
  synth.config_json = golden_dir() / "../../configs/demo/config.json";
  synth.seed = 1;
  synth.out = folder / "demo";
  synth.tokenizer = golden_dir() / "../../configs/deepseek-v4-flash";
  ingot::value_or_throw(
      ingot::write_synthetic_checkpoint(synth, [](std::uint64_t, std::uint64_t) {}));
  const auto tokenizer = ingot::value_or_throw(ingot::Tokenizer::load(synth.out));

  const json golden = json::parse(read_file(golden_dir() / "cli/greedy.json"));
  std::string input;
  for (const json& prompt : golden["prompts"])
    input += prompt["prompt"].get<std::string>() + "\n";
  write_file(folder / "in.txt", input);
  const auto ran =
      run_ingot({"generate", "--model", synth.out, "--input", folder / "in.txt", "--output",
                 folder / "out", "--temperature", "0", "--max-tokens", "12", "--text"});
  REQUIRE(ran.status == 0);
  std::istringstream answers(read_file(folder / "out"));
  std::size_t compared = 0;
  for (const json& prompt : golden["prompts"]) {
    CAPTURE(prompt["prompt"]);
    std::string answer;
    REQUIRE(std::getline(answers, answer));
    // Where the answers part, the token there must not have had a clear lead.
    std::string expected;
    for (const json& step : prompt["steps"]) {
      const std::string with_next = expected + std::string(tokenizer.bytes(step[0]));
      if (!answer.starts_with(with_next)) {
        CAPTURE(answer, with_next);
        CHECK(step[1] < kClearLead);
        break;
      }
      expected = with_next;
      ++compared;
    }
  }
  CHECK(compared >= 20);
}
