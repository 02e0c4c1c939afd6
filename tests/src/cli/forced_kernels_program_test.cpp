// --pin, --disable and --deterministic, as the built program takes them on a machine without GPU.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/run_program.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;

namespace {

std::string line(int id) {
  return fmt::format(
      "{{\"custom_id\": \"{}\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
      "{{\"messages\": [{{\"role\": \"user\", \"content\": \"how many legs has a {}\"}}], "
      "\"max_tokens\": {}, \"ignore_eos\": true}}}}\n",
      id, id * 977, 3 + id % 6);
}

/// Commands that run a model, each with what it needs.
std::vector<std::vector<std::string>> commands(const TempDir& folder) {
  write_file(folder / "in.txt", "hi\n");
  return {{"chat", "--prompt", "hi", "--max-tokens", "2"},
          {"generate", "--input", folder / "in.txt", "--output", folder / "out", "--force",
           "--max-tokens", "2"},
          {"score", "--text", "hi there"}};
}

ProgramResult run(std::vector<std::string> command, const std::vector<std::string>& more) {
  command.insert(command.end(), {"--model", tiny_model(), "--device", "cpu"});
  command.insert(command.end(), more.begin(), more.end());
  return run_ingot(command);
}

}  // namespace

TEST_CASE("every command that runs a model takes what kernels are forced, and knows them by name",
          "[cpu][cli]") {
  const TempDir folder;
  for (const auto& command : commands(folder)) {
    CAPTURE(command[0]);
    const ProgramResult forced = run(command, {"--pin", "sparse_mla_decode_simt.WARPS=4",
                                               "--disable", "fp8_linear", "--deterministic"});
    CAPTURE(forced.err);
    CHECK(forced.status == 0);
    CHECK(forced.err.find("which has no kernels: --pin and --disable have no say") !=
          std::string::npos);
    const ProgramResult family = run(command, {"--pin", "attention.WARPS=4"});
    CHECK(family.status == 2);
    CHECK(family.err.find("no kernel family \"attention\"; families: ") != std::string::npos);
    const ProgramResult parameter = run(command, {"--pin", "rms_norm.SPLIT=4"});
    CHECK(parameter.status == 2);
    CHECK(parameter.err.find("its parameters: ") != std::string::npos);
    const ProgramResult disabled = run(command, {"--disable", "attention"});
    CHECK(disabled.status == 2);
    CHECK(disabled.err.find("families: ") != std::string::npos);
  }
}

TEST_CASE("a settings file forces kernels, too", "[cpu][cli]") {
  const TempDir folder;
  write_file(folder / "s.toml",
             "[kernels]\npin = [\"rms_norm.VECTOR=8\"]\ndisable = [\"nothing\"]\n"
             "[engine]\ndeterministic = true\n");
  const ProgramResult ran = run(commands(folder).back(), {"--config", folder / "s.toml"});
  CHECK(ran.status == 2);
  CHECK(ran.err.find("there is no kernel family \"nothing\"") != std::string::npos);
}

TEST_CASE("on the CPU answers are the same with and without --deterministic, however scheduled",
          "[cpu][cli][deterministic]") {
  const TempDir folder;
  std::string forwards, backwards;
  for (int i = 0; i < 14; ++i) {
    forwards += line(i);
    backwards = line(i) + backwards;
  }
  write_file(folder / "in.jsonl", forwards);
  write_file(folder / "back.jsonl", backwards);
  int runs = 0;
  const auto answers = [&](const std::string& input, std::vector<std::string> more) {
    const std::filesystem::path out = folder / fmt::format("out-{}", runs++);
    std::vector<std::string> command{"generate", "--input", folder / input,  "--output", out,
                                     "--order",  "input",   "--temperature", "0"};
    const ProgramResult ran = run(command, more);
    CAPTURE(ran.err);
    REQUIRE(ran.status == 0);
    std::map<std::string, std::string> contents;
    std::istringstream lines(read_file(out));
    for (std::string one; std::getline(lines, one);) {
      const auto answer = nlohmann::json::parse(one);
      contents[answer["custom_id"]] = answer["response"]["body"]["choices"].dump();
    }
    return contents;
  };
  const auto usual = answers("in.jsonl", {});
  REQUIRE(usual.size() == 14);
  CHECK(answers("in.jsonl", {"--deterministic", "--max-batch", "1"}) == usual);
  CHECK(answers("in.jsonl", {"--deterministic", "--max-batch", "7", "--prefill-chunk", "3"}) ==
        usual);
  CHECK(answers("back.jsonl", {"--deterministic", "--max-batch", "3", "--longest-first"}) == usual);
}
