// `ingot generate`, the built program, interrupted and gone on with, on full disks and on many
// machines.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "tests/support/run_program.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string line(std::string_view id, int tokens) {
  return fmt::format(
      "{{\"custom_id\": \"{}\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
      "{{\"messages\": [{{\"role\": \"user\", \"content\": \"hi {}\"}}], \"max_tokens\": {}, "
      "\"ignore_eos\": true}}}}\n",
      id, id, tokens);
}

ProgramResult generate(const fs::path& in, const fs::path& out, std::vector<std::string> more = {},
                       const ProgramOptions& options = {}) {
  std::vector<std::string> all{"generate", "--model", tiny_model(), "--input", in, "--output", out};
  if (std::find(more.begin(), more.end(), "--device") == more.end()) {
    more.insert(more.end(), {"--device", "cpu"});
  }
  all.insert(all.end(), more.begin(), more.end());
  return run_ingot(all, options);
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one);)
    lines.push_back(json::parse(one));
  return lines;
}

/// Waits, within the program's `then`, until a file has so many bytes.
void wait_for_bytes(const fs::path& file, std::uintmax_t bytes) {
  for (int i = 0; i < 20'000; ++i) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (!error && size >= bytes) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// A signal once a file has so many bytes, counted from the line that says which device is taken.
ProgramResult generate_until(const fs::path& in, const fs::path& out, std::uintmax_t bytes,
                             int signal, std::vector<std::string> more) {
  ProgramOptions options;
  options.wait_for = "ingot: device";
  options.then = [&](int process) {
    wait_for_bytes(out.string() + ".partial", bytes);
    ::kill(process, signal);
  };
  more.insert(more.end(), {"--device", "auto"});
  return generate(in, out, more, options);
}

/// Runs generate on folder/in.jsonl with its output on a disk of its own, folder/disk; what is
/// there at the end lies in the folder, and what it said in folder/err. nullopt where none can be
/// mounted.
/// @param first         shell command before the run; $1 is the folder
/// @param when_waiting  once the run waits for room, or has ended
std::optional<ProgramResult> generate_on_small_disk(const TempDir& folder, std::uintmax_t kib,
                                                    const std::string& first,
                                                    const std::string& arguments,
                                                    const std::string& when_waiting) {
  fs::create_directory(folder / "disk");
  const std::string script = fmt::format(
      "mount -t tmpfs -o size={}k tmpfs \"$1/disk\" || exit 99\n{}\n"
      "\"$2\" generate --model \"$3\" --device cpu --input \"$1/in.jsonl\" --output "
      "\"$1/disk/out\" {} 2> \"$1/err\" & program=$!\n"
      "i=0; while [ $i -lt 600 ] && ! grep -q 'waiting for room' \"$1/err\" && kill -0 $program; "
      "do sleep 0.05; i=$((i+1)); done 2> /dev/null\n"
      "{}; wait $program; status=$?\n"
      "cp \"$1/disk/out\" \"$1/disk/out.partial\" \"$1/\" 2> /dev/null; exit $status\n",
      kib, first, arguments, when_waiting);
  ProgramOptions options;
  options.program = "/usr/bin/unshare";
  options.environment = {"HOME=/nonexistent", "TERM=dumb", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  try {
    auto ran = run_ingot({"-rm", "/bin/sh", "-c", script, "sh", folder.path(),
                          fs::absolute(ingot_program()), tiny_model()},
                         options);
    if (ran.status != 99 && fs::exists(folder / "err")) return ran;
  } catch (const std::runtime_error&) {
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("an interrupt ends the lines in flight, and --resume answers the others", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 30; ++i)
    input += line(std::to_string(i), i == 1 ? 300 : 6);
  write_file(folder / "in.jsonl", input);
  const auto whole = generate(folder / "in.jsonl", folder / "whole", {"--order", "input"});
  REQUIRE(whole.status == 0);
  const auto ran = generate_until(folder / "in.jsonl", folder / "out", 1, SIGINT,
                                  {"--max-batch", "2", "--stats", folder / "stats"});
  CAPTURE(ran.err);
  CHECK(ran.status == 130);
  CHECK(ran.err.find("lines in flight; once more drops them") != std::string::npos);
  CHECK(ran.err.find("--resume goes on") != std::string::npos);
  CHECK(!fs::exists(folder / "out"));
  const auto kept = lines_of(read_file(folder / "out.partial"));
  CHECK(kept.size() < 30);
  bool long_one = false;
  for (const json& each : kept)
    long_one |= each["response"]["body"]["usage"]["completion_tokens"] == 300;
  CHECK(long_one);
  const auto stats = lines_of(read_file(folder / "stats"));
  REQUIRE(!stats.empty());
  CHECK(stats.back()["end"] == true);
  CHECK(stats.back()["interrupted"] == true);
  CHECK(stats.back()["answered"] == kept.size());
  CHECK(stats.back()["input_bytes_read"] < input.size());

  const auto refused = generate(folder / "in.jsonl", folder / "out");
  CHECK(refused.status == 2);
  CHECK(refused.err.find("--resume") != std::string::npos);
  const auto again =
      generate(folder / "in.jsonl", folder / "out", {"--resume", "--order", "input"});
  CAPTURE(again.err);
  CHECK(again.status == 0);
  CHECK(again.err.find(fmt::format("{} were there already", kept.size())) != std::string::npos);
  CHECK(read_file(folder / "out") == read_file(folder / "whole"));
}

TEST_CASE("a batch that is killed at twenty points ends as one that was not", "[cpu][cli]") {
  constexpr int kLines = 60, kRuns = 4, kKills = 5;
  const TempDir folder;
  std::string input;
  for (int i = 0; i < kLines; ++i)
    input += i == 5 ? "broken\n" : line(std::to_string(i), 3 + i % 7);
  write_file(folder / "in.jsonl", input);
  REQUIRE(generate(folder / "in.jsonl", folder / "whole", {"--order", "input"}).status == 1);
  const auto size = fs::file_size(folder / "whole");
  std::mt19937 random(20);
  for (int run = 0; run < kRuns; ++run) {
    fs::remove(folder / "out");
    for (int kill = 0; kill < kKills; ++kill) {
      // Anywhere in this kill's share of the output; the last tenth may be done too soon.
      const auto bytes = 1 + size * 9 / 10 *
                                 (1000 * static_cast<unsigned>(kill) + random() % 1000) /
                                 (1000 * kKills);
      CAPTURE(run, kill, bytes, size);
      std::vector<std::string> how{"--max-batch", std::to_string(1 + random() % 6)};
      if (kill > 0) how.emplace_back("--resume");
      const auto ran =
          generate_until(folder / "in.jsonl", folder / "out", bytes, SIGKILL, std::move(how));
      CAPTURE(ran.err);
      REQUIRE(ran.status == 137);
      // And the power went, too.
      const std::string partial = read_file(folder / "out.partial");
      if (kill % 2 == 0) write_file(folder / "out.partial", partial + "{\"id\": \"batch_re");
    }
    const auto last = generate(folder / "in.jsonl", folder / "out",
                               {"--resume", "--order", "input", "--max-batch", "5"});
    CAPTURE(last.err);
    CHECK(last.status == 1);
    REQUIRE(fs::exists(folder / "out"));
    CHECK(read_file(folder / "out") == read_file(folder / "whole"));
  }
}

TEST_CASE("a run that is gone on with has the status of its output, old failures included",
          "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "bad.jsonl", "{}\n" + line("a", 3));
  REQUIRE(generate(folder / "bad.jsonl", folder / "out").status == 1);
  const auto again = generate(folder / "bad.jsonl", folder / "out", {"--resume"});
  CAPTURE(again.err);
  CHECK(again.status == 1);
  CHECK(again.err.find("2 were there already, 1 of them failed") != std::string::npos);
  write_file(folder / "good.jsonl", line("a", 3));
  REQUIRE(generate(folder / "good.jsonl", folder / "fine").status == 0);
  CHECK(generate(folder / "good.jsonl", folder / "fine", {"--resume"}).status == 0);
}

// Hidden: it takes minutes.
TEST_CASE("ten thousand lines pass through the built-in model on the CPU", "[.][cpu][cli][long]") {
  constexpr int kLines = 10'000;
  const TempDir folder;
  std::string input;
  for (int i = 0; i < kLines; ++i)
    input += line(std::to_string(i), 1 + i % 5);
  write_file(folder / "in.jsonl", input);
  const auto model =
      fs::absolute(golden_dir()).parent_path().parent_path() / "configs/models/ingot-tiny";
  const auto ran =
      run_ingot({"generate", "--model", model, "--device", "cpu", "--max-batch", "64", "--input",
                 folder / "in.jsonl", "--output", folder / "out", "--order", "input"});
  fmt::print("{}\n", ran.err.substr(std::min(ran.err.size(), ran.err.rfind("answered") - 6)));
  REQUIRE(ran.status == 0);
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == kLines);
  for (int i = 0; i < kLines; ++i) {
    const json& one = lines[static_cast<std::size_t>(i)];
    REQUIRE(one["custom_id"] == std::to_string(i));
    REQUIRE(one["response"]["body"]["usage"]["completion_tokens"] == 1 + i % 5);
  }
  CHECK(ran.peak_bytes < (std::size_t{300} << 20));
}

TEST_CASE("lines that failed are answered again where that is asked for", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a", 3) + line("b", 3) + "{}\n" + line("b", 4));
  std::string bad = line("a", 3);
  bad.replace(bad.find("\"ignore_eos\": true"), 18, "\"top_p\": 7");
  write_file(folder / "bad.jsonl", bad + line("b", 3) + "{}\n" + line("b", 4));
  REQUIRE(generate(folder / "bad.jsonl", folder / "out").status == 1);
  const auto kept = generate(folder / "in.jsonl", folder / "out", {"--resume"});
  CHECK(kept.err.find("4 were there already, 3 of them failed") != std::string::npos);
  CHECK(kept.status == 1);
  const auto again = generate(folder / "in.jsonl", folder / "out",
                              {"--resume", "--retry-failed", "--order", "input"});
  CAPTURE(again.err);
  CHECK(again.status == 1);  // the empty object, and the second b
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0]["error"].is_null());
  CHECK(lines[1]["error"].is_null());
  CHECK(lines[2]["error"]["line"] == 3);
  CHECK(lines[3]["error"]["code"] == "duplicate_custom_id");
}

TEST_CASE("what is no output of generate is not gone on with", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a", 2));
  write_file(folder / "out", "my notes\nof yesterday\n");
  const auto ran = generate(folder / "in.jsonl", folder / "out", {"--resume"});
  CHECK(ran.status == 2);
  CHECK(ran.err.find("line 1 is no answer of ingot generate") != std::string::npos);
  CHECK(read_file(folder / "out") == "my notes\nof yesterday\n");
  // The same where the earlier run had not ended: not one of its good lines goes.
  REQUIRE(generate(folder / "in.jsonl", folder / "good").status == 0);
  const std::string partial = read_file(folder / "good") + "garbage\n";
  write_file(folder / "cut.partial", partial);
  const auto refused = generate(folder / "in.jsonl", folder / "cut", {"--resume"});
  CHECK(refused.status == 2);
  CHECK(refused.err.find("line 2 is no answer of ingot generate") != std::string::npos);
  CHECK(read_file(folder / "cut.partial") == partial);
  CHECK(generate(folder / "in.jsonl", "-", {"--resume"}).status == 2);
  CHECK(generate(folder / "in.jsonl", folder / "new", {"--resume", "--text"}).status == 2);
  CHECK(generate(folder / "in.jsonl", folder / "new", {"--resume", "--force"}).status == 2);
  CHECK(generate(folder / "in.jsonl", folder / "new", {"--retry-failed"}).status == 2);
}

TEST_CASE("an output of another input, of another shard or with answers twice is not gone on with",
          "[cpu][cli]") {
  const TempDir folder;
  std::string input, other;
  for (int i = 0; i < 6; ++i) {
    input += line(std::to_string(i), 2);
    other += line("other-" + std::to_string(i), 2);
  }
  write_file(folder / "in.jsonl", input);
  write_file(folder / "other.jsonl", other);
  const std::vector<std::string> shard{"--shard", "1/2"};
  REQUIRE(generate(folder / "in.jsonl", folder / "whole", shard).status == 0);
  const std::string whole = read_file(folder / "whole");
  const std::string first = whole.substr(0, whole.find('\n') + 1);
  const bool unfinished = GENERATE(false, true);
  const std::string left = unfinished ? "out.partial" : "out";
  const auto refuses = [&](const fs::path& in, const std::string& there,
                           const std::vector<std::string>& how, std::vector<std::string> why) {
    write_file(folder / left, there);
    auto more = how;
    more.emplace_back("--resume");
    const auto ran = generate(in, folder / "out", more);
    CAPTURE(ran.err);
    CHECK(ran.status == 2);
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
    why.push_back("/" + left + ": its line ");
    for (const std::string& part : why)
      CHECK(ran.err.find(part) != std::string::npos);
    CHECK(read_file(folder / left) == there);
    CHECK(fs::exists(folder / "out") == !unfinished);
    CHECK(fs::exists(folder / "out.partial") == unfinished);
  };
  refuses(folder / "other.jsonl", whole, shard,
          {"custom_id \"0\"", "has custom_id \"other-0\"", "/other.jsonl"});
  refuses(folder / "in.jsonl", whole, {"--shard", "2/2"}, {"custom_id \"0\"", "--shard 2/2"});
  refuses(folder / "in.jsonl", whole, {"--shard", "1/3"}, {"custom_id \"2\"", "--shard 1/3"});
  refuses(folder / "in.jsonl", whole + first, shard, {"its line 4 ", "as its line 1 does"});
  // All of it is good for a run without shards, which does the rest.
  write_file(folder / left, whole);
  CHECK(generate(folder / "in.jsonl", folder / "out", {"--resume"}).status == 0);
  CHECK(lines_of(read_file(folder / "out")).size() == 6);
}

TEST_CASE("a run from a pipe is gone on with", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 9; ++i)
    input += i == 4 ? "\n" : line(std::to_string(i), 2);
  write_file(folder / "in.jsonl", input);
  REQUIRE(generate(folder / "in.jsonl", folder / "whole", {"--order", "input"}).status == 0);
  const std::string whole = read_file(folder / "whole");
  // Lines 2 and 6 are there; those before, between and behind them come.
  std::istringstream stream(whole);
  std::string left, one;
  for (int i = 0; std::getline(stream, one); ++i) {
    if (i == 1 || i == 4) left += one + "\n";
  }
  write_file(folder / "out.partial", left);
  ProgramOptions options;
  options.input = input;
  const std::vector<std::string> how{"--format", "jsonl", "--resume", "--order", "input"};
  const auto again = generate("-", folder / "out", how, options);
  CAPTURE(again.err);
  CHECK(again.status == 0);
  CHECK(again.err.find("2 were there already") != std::string::npos);
  CHECK(read_file(folder / "out") == whole);
  const std::string shifted = line("x", 2) + input;
  options.input = shifted;
  const auto refused = generate("-", folder / "out", how, options);
  CAPTURE(refused.err);
  CHECK(refused.status == 2);
  CHECK(refused.err.find("has custom_id \"x\" in standard input") != std::string::npos);
  CHECK(read_file(folder / "out") == whole);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("shards are put together, and what is missing is named", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 7; ++i)
    input += (i == 3 ? "\n" : "") + line(std::to_string(i), 2);
  write_file(folder / "in.jsonl", input);
  REQUIRE(generate(folder / "in.jsonl", folder / "whole", {"--order", "input"}).status == 0);
  std::vector<std::string> merge{"--merge"};
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const std::string out = folder / ("out" + std::string(1, shard[0]));
    REQUIRE(generate(folder / "in.jsonl", out, {"--shard", shard}).status == 0);
    merge.push_back(out);
  }
  const auto merged = generate(folder / "in.jsonl", folder / "merged", merge);
  CAPTURE(merged.err);
  CHECK(merged.status == 0);
  CHECK(read_file(folder / "merged") == read_file(folder / "whole"));
  merge.pop_back();
  const auto missing = generate(folder / "in.jsonl", folder / "other", merge);
  CHECK(missing.status == 2);
  CHECK(missing.err.find("lines have no answer (3, 6)") != std::string::npos);
  CHECK(!fs::exists(folder / "other"));
  for (const char* bad : {"0/3", "4/3", "1", "1/", "a/b", "1/3x"})
    CHECK(generate(folder / "in.jsonl", folder / "other", {"--shard", bad}).status == 2);
}

TEST_CASE("a template makes a chat of each line's fields", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", "{\"text\": \"one\", \"id\": 5}\n{\"txt\": 1}\n");
  write_file(folder / "template.json",
             R"({"messages": [{"role": "user", "content": "Say {{text}}."}], "max_tokens": 2})");
  const auto ran = generate(folder / "in.jsonl", folder / "out",
                            {"--template", folder / "template.json", "--order", "input"});
  CHECK(ran.status == 1);
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["custom_id"] == "5");
  CHECK(lines[0]["response"]["body"]["usage"]["completion_tokens"] == 2);
  CHECK(lines[1]["error"]["message"].get<std::string>().find("\"text\"") != std::string::npos);
  write_file(folder / "template.json", "[]");
  CHECK(generate(folder / "in.jsonl", folder / "new", {"--template", folder / "template.json"})
            .status == 2);
}

TEST_CASE("what --merge leaves as it is is not asked of it", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a", 2));
  REQUIRE(generate(folder / "in.jsonl", folder / "out").status == 0);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--text"}, {"--resume"}, {"--shard", "1/2"}}) {
    std::vector<std::string> how = more;
    how.insert(how.end(), {"--merge", folder / "out"});
    const auto ran = generate(folder / "in.jsonl", folder / "merged", how);
    CHECK(ran.status == 2);
    CHECK(ran.err.find("leave out " + more.front()) != std::string::npos);
    CHECK(!fs::exists(folder / "merged"));
  }
}

TEST_CASE("no message offers --resume where it is refused", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a", 2));
  REQUIRE(generate(folder / "in.jsonl", folder / "one").status == 0);
  const bool merge = GENERATE(false, true);
  const std::string left = GENERATE("out", "out.partial");
  write_file(folder / left, "old\n");
  const auto more = merge ? std::vector<std::string>{"--merge", folder / "one"}
                          : std::vector<std::string>{"--text"};
  const auto ran = generate(folder / "in.jsonl", folder / "out", more);
  CAPTURE(ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.err.find("/" + left + ": it exists") != std::string::npos);
  CHECK(ran.err.find("--force") != std::string::npos);
  CHECK(ran.err.find("--resume") == std::string::npos);
  CHECK(read_file(folder / left) == "old\n");
}

TEST_CASE("an interrupted run whose output is a pipe does not offer --resume", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 30; ++i)
    input += line(std::to_string(i), 300);
  write_file(folder / "in.jsonl", input);
  ProgramOptions options;
  options.wait_for_output = 1;
  options.then = [](int pid) { ::kill(pid, SIGINT); };
  const auto ran = generate(folder / "in.jsonl", "-", {"--max-batch", "2"}, options);
  CAPTURE(ran.err);
  CHECK(ran.status == 130);
  CHECK(ran.err.find("the finished lines are in standard output") != std::string::npos);
  CHECK(ran.err.find("--resume") == std::string::npos);
}

TEST_CASE("an output that may not be written keeps its name when it is gone on with",
          "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "in.jsonl", line("a", 2));
  REQUIRE(generate(folder / "in.jsonl", folder / "out").status == 0);
  const std::string whole = read_file(folder / "out");
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(folder / "out", fs::perms::owner_read | fs::perms::others_read);
  ProgramOptions options;
  options.as_nobody = true;
  const auto ran = generate(folder / "in.jsonl", folder / "out", {"--resume"}, options);
  CAPTURE(ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.err.find("/out: Permission denied") != std::string::npos);
  CHECK(read_file(folder / "out") == whole);
}

TEST_CASE("an input in UTF-16 is refused before anything is made", "[cpu][cli]") {
  const TempDir folder;
  const auto refused = [&](std::string_view name, const std::string& text, std::string_view why) {
    write_file(folder / name, text);
    // Before the model is looked for.
    const auto ran = run_ingot({"generate", "--model", "/nonexistent", "--input", folder / name,
                                "--output", folder / "out"});
    CAPTURE(ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.err.find(why) != std::string::npos);
    CHECK(ran.err.find("iconv -f UTF-16") != std::string::npos);
    CHECK(!fs::exists(folder / "out"));
    CHECK(!fs::exists(folder / "out.partial"));
  };
  const std::string marked("\xFF\xFEh\0i\0\n\0", 8);
  refused("in.txt", marked, "in.txt: it is UTF-16");
  refused("in.txt", marked.substr(2), "in.txt: it is UTF-16 without");
  refused("in.txt", std::string("\0h\0i\0\n", 6), "in.txt: it is UTF-16 without");
  refused("in.jsonl", std::string("{\0}\0\n\0", 6), "in.jsonl: it is UTF-16 without");
  // Few zeros, as of a text that is not ASCII: no UTF-8 either way.
  refused("in.txt", "one line\n" + std::string("of two\0", 7), "in.txt: byte 15 is NUL");
}

TEST_CASE("a line of plain text that is no text fails alone", "[cpu][cli]") {
  const TempDir folder;
  const std::string far(std::size_t{64} << 10, ' ');  // a blank line, past what is looked at first
  write_file(folder / "in.txt", "one\ncaf\xE9\n" + far + "\n" + std::string("t\0wo\nthree\n", 11));
  const auto ran = generate(folder / "in.txt", folder / "out",
                            {"--order", "input", "--max-tokens", "2", "--temperature", "0"});
  CAPTURE(ran.err);
  CHECK(ran.status == 1);
  const auto lines = lines_of(read_file(folder / "out"));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0]["error"].is_null());
  CHECK(lines[1]["custom_id"] == "line-2");
  CHECK(lines[1]["error"]["code"] == "invalid_text");
  CHECK(lines[1]["error"]["message"].get<std::string>().starts_with("line 2: the line: byte 3"));
  CHECK(lines[2]["error"]["message"].get<std::string>().find("byte 1 is NUL") != std::string::npos);
  CHECK(lines[3]["error"].is_null());
  CHECK(generate(folder / "in.txt", folder / "out", {"--resume"}).status == 1);
}

TEST_CASE("statistics never take the place of a file of the run, or of one that nobody gave up",
          "[cpu][cli]") {
  const TempDir folder;
  const fs::path in = folder / "in.jsonl", out = folder / "out", other = folder / "notes";
  const std::string lines = line("0", 2);
  write_file(in, lines);
  write_file(folder / "template.json", R"({"prompt": "{{text}}"})");
  write_file(other, "notes\n");
  fs::create_symlink(in, folder / "link");
  const auto refused = [&](const fs::path& stats, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--stats", stats.string()});
    const auto ran = generate(in, out, more);
    CAPTURE(stats, ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.err.find("writing statistics to " + stats.string()) != std::string::npos);
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
    CHECK(read_file(in) == lines);
    CHECK(read_file(other) == "notes\n");
    CHECK(!fs::exists(out));
  };
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--force"}}) {
    refused(in, more);
    refused(folder / "link", more);
    refused(out, more);
    refused(folder / "out.partial", more);
  }
  refused(folder / "template.json", {"--force", "--template", folder / "template.json"});
  CHECK(read_file(folder / "template.json") == R"({"prompt": "{{text}}"})");
  refused(other);
  const auto replaced = generate(in, out, {"--force", "--stats", other});
  CHECK(replaced.status == 0);
  CHECK(read_file(other).find("\"answered\": 1") != std::string::npos);
}

TEST_CASE("statistics that cannot be written are said to be missing, once", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 3; ++i)
    input += line(std::to_string(i), 2);
  write_file(folder / "in.jsonl", input);
  const auto ran =
      generate(folder / "in.jsonl", folder / "out", {"--stats", "/dev/full", "--quiet"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  CHECK(ran.err.find("writing statistics to /dev/full: No space left") != std::string::npos);
}

TEST_CASE("a full disk is waited for, and the run goes on when there is room", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 60; ++i)
    input += line(std::to_string(i), 2);
  write_file(folder / "in.jsonl", input);
  const bool stop = GENERATE(false, true);
  // A disk of 64 KiB that a file of 52 fills; once the program waits, that file goes.
  const auto ran =
      generate_on_small_disk(folder, 64, "head -c 53248 /dev/zero > \"$1/disk/filler\"",
                             std::string("--max-batch 2 --disk-full ") + (stop ? "stop" : "wait"),
                             "rm \"$1/disk/filler\"");
  if (!ran) {
    skip("no file system can be mounted here");
    return;
  }
  const std::string said = read_file(folder / "err");
  CAPTURE(said, ran->err);
  CHECK(said.find("No space left on device") != std::string::npos);
  if (stop) {
    CHECK(ran->status == 1);
    const auto lines = lines_of(read_file(folder / "out.partial"));
    CHECK(lines.size() > 5);
    CHECK(lines.size() < 60);
  } else {
    CHECK(ran->status == 0);
    CHECK(said.find("waiting for room") != std::string::npos);
    CHECK(lines_of(read_file(folder / "out")).size() == 60);
  }
}

TEST_CASE("a disk too full to bring the lines into order is waited for", "[cpu][cli]") {
  const TempDir folder;
  std::string input;
  for (int i = 0; i < 60; ++i)
    input += line(std::to_string(i), i % 5 == 0 ? 9 : 2);
  write_file(folder / "in.jsonl", input);
  REQUIRE(generate(folder / "in.jsonl", folder / "whole", {"--order", "input"}).status == 0);
  const auto kib = fs::file_size(folder / "whole") / 1024;
  // Room for the lines once and a half.
  const auto ran =
      generate_on_small_disk(folder, kib * 3 / 2, ":", "--order input --max-batch 3",
                             fmt::format("mount -o remount,size={}k \"$1/disk\"", kib * 4));
  if (!ran) {
    skip("no file system can be mounted here");
    return;
  }
  const std::string said = read_file(folder / "err");
  CAPTURE(said);
  CHECK(ran->status == 0);
  CHECK(said.find("out.partial.new: No space left on device") != std::string::npos);
  CHECK(read_file(folder / "out") == read_file(folder / "whole"));
}
