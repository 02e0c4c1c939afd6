// Input that the built program refuses, or fails on half-way: how much memory that takes, and that
// nothing comes out which looks whole.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;

namespace {

constexpr std::size_t kRefusedPeakBytes = 100'000'000;
constexpr std::uint16_t kNan = 0x7FC0;
constexpr std::size_t kMiB = std::size_t{1} << 20;

void refused(const ProgramResult& ran, std::string_view word) {
  CAPTURE(ran.err.substr(0, 300), ran.peak_bytes);
  CHECK(ran.status == 2);
  CHECK(ran.out.empty());
  CHECK(ran.err.find("ingot: error: ") == 0);
  CHECK(ran.err.find(word) != std::string::npos);
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
  CHECK(ran.err.size() < 1000);
  if (!kSanitized) CHECK(ran.peak_bytes < kRefusedPeakBytes);
}

std::string repeat(std::string_view part, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() + part.size() <= bytes)
    text += part;
  return text;
}

}  // namespace

TEST_CASE("a hostile conversation file of 16 MiB is refused within 100 MB", "[cpu][cli]") {
  const auto [begin, part, end, word] =
      GENERATE(table<const char*, const char*, const char*, const char*>({
          {R"([{"role": "user", "content": ")", "\\u00e9", "", "no end"},
          {R"([{"role": "user", "content": ")", "x", R"(\u12"}])", "an escape that is none"},
          {R"([{"role": "user", "content": ")", "word ", R"("}])", "--context"},
          {R"([{"role": "king", "content": ")", "word ", R"("}])", "king"},
          {R"([{")", "k", R"(": 1, "role": "user", "content": "x"}])", "unknown field"},
          {R"([)", R"({"role": "user", "content": "x"}, )", "0]", "160000 JSON values"},
          {R"([)", "7", "]", "a number of"},
          {"", "[", "", "nested too deeply"},
          {R"([{"role": "user", "content": "x"}], )", " ", "x", "not valid JSON"},
      }));
  CAPTURE(begin, part);
  const TempDir folder;
  write_file(folder / "c.json", begin + repeat(part, 16 * kMiB - 200) + end);
  refused(run_ingot({"chat", "--model", tiny_model(), "--conversation", folder / "c.json"}), word);
  if (word != std::string_view("--context")) {
    refused(run_ingot({"tokens", "--model", tiny_model(), "--messages", folder / "c.json"}), word);
  }
}

TEST_CASE("a conversation file over 16 MiB is refused unread", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "c.json", "");
  std::filesystem::resize_file(folder / "c.json", 1'000'000'000);  // sparse
  refused(run_ingot({"chat", "--model", tiny_model(), "--conversation", folder / "c.json"}),
          "longer than 16777216 bytes");
  refused(run_ingot({"tokens", "--model", tiny_model(), "--messages", folder / "c.json"}),
          "longer than 16777216 bytes");
}

TEST_CASE("too much on a pipe is refused within 100 MB", "[cpu][cli]") {
  const std::string much = repeat("word ", 40 * kMiB);
  ProgramOptions options;
  options.input = much;
  refused(run_ingot({"tokens", "--model", tiny_model(), "--input", "-"}, options), "longer than");
  refused(run_ingot({"tokens", "--model", tiny_model(), "--messages", "-"}, options),
          "longer than");
  refused(run_ingot({"score", "--model", tiny_model(), "--input", "-"}, options), "longer than");
}

TEST_CASE("a text that cannot fit the context is not scored, within 100 MB", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "t.txt", repeat("word ", 16 * kMiB - 10));
  refused(run_ingot({"score", "--model", tiny_model(), "--input", folder / "t.txt"}), "--context");
  std::filesystem::resize_file(folder / "t.txt", 1'000'000'000);
  refused(run_ingot({"score", "--model", tiny_model(), "--input", folder / "t.txt"}),
          "longer than");
}

TEST_CASE("a line of 15 MiB in a chat is refused within 100 MB beside the model", "[cpu][cli]") {
  const std::string input = repeat("word ", 15 * kMiB) + "\nhello\n";
  ProgramOptions options;
  options.input = input;
  const auto ran = run_ingot({"chat", "--model", tiny_model(), "--device", "cpu", "--temperature",
                              "0", "--max-tokens", "2"},
                             options);
  CHECK(ran.status == 2);
  CHECK(ran.err.find("--context") != std::string::npos);
  CHECK(!ran.out.empty());  // the other line is answered
  if (!kSanitized) CHECK(ran.peak_bytes < kRefusedPeakBytes);
}

TEST_CASE("score that fails half-way prints no JSON", "[cpu][cli]") {
  const TempDir folder;
  write_changed_tiny_model(folder / "nan", "embed.weight", {7}, kNan);
  const auto score = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"score", "--model",  folder / "nan", "--device",
                                       "cpu",   "--tokens", "5,6,7,8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_ingot(arguments);
  };
  const auto json = score({"--json"});
  CAPTURE(json.err);
  CHECK(json.status == 2);
  CHECK(json.out.empty());
  CHECK(json.err.find("position 2") != std::string::npos);
  CHECK(json.err.find("ingot inspect --hash") != std::string::npos);
  // The table is for people: its lines stand, and no sum follows them.
  const auto table = score({});
  CHECK(table.status == 2);
  CHECK(table.out.find("perplexity") == std::string::npos);
}

TEST_CASE("every command says the same of a full disk behind standard output", "[cpu][cli]") {
  const std::string model = tiny_model();
  const auto arguments = GENERATE_COPY(values<std::vector<std::string>>({
      {"inspect", model},
      {"inspect", model, "--json"},
      {"inspect", model, "--hash"},
      {"tokens", "--model", model, "--text", "hello"},
      {"tokens", "--model", model, "--text", "hello", "--json"},
      {"tokens", "--model", model, "--text", std::string(20'000, 'x')},
      {"score", "--model", model, "--device", "cpu", "--tokens", "5,6"},
      {"score", "--model", model, "--device", "cpu", "--tokens", "5,6", "--json"},
      {"doctor"},
      {"doctor", "--settings", "--json"},
      {"chat", "--model", model, "--device", "cpu", "--prompt", "hello", "--max-tokens", "2"},
      {"--version"},
      {"inspect", "--help"},
  }));
  CAPTURE(arguments);
  ProgramOptions options;
  options.output_file = "/dev/full";
  const auto ran = run_ingot(arguments, options);
  CHECK(ran.status == 1);
  CHECK(ran.err == "ingot: error: writing to standard output: No space left on device\n");
}
