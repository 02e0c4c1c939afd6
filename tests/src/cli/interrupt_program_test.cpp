// What a signal does to the built program: its exit status, and what it leaves behind.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/text/control_tokens.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/tiny_model.hpp"

using namespace ingot::test;
namespace fs = std::filesystem;

namespace {

/// Said before the weights are read, where the user has not named a device.
constexpr const char* kLoading = "ingot: device cpu";

ProgramOptions signal_when(std::string said, int signal) {
  ProgramOptions options;
  options.keep_input_open = true;  // a program that has loaded waits
  options.wait_for = std::move(said);
  options.then = [signal](int process) { ::kill(process, signal); };
  return options;
}

/// A model whose greedy answers never end: the logits of all that ends one are 0.
fs::path endless_model(const TempDir& folder) {
  write_changed_tiny_model(folder / "endless", "head.weight",
                           {control_id(ingot::control::kEos), control_id(ingot::control::kUser)},
                           0);
  return folder / "endless";
}

}  // namespace

TEST_CASE("a signal while generate loads leaves nothing behind", "[cpu][cli]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
  CAPTURE(signal);
  bool while_loading = false;
  // On a busy machine the model may be there before the signal is: then it comes to the job.
  for (int attempt = 0; attempt < 20 && !while_loading; ++attempt) {
    const TempDir folder;
    const auto ran = run_ingot({"generate", "--model", tiny_model(), "--input", "-", "--format",
                                "jsonl", "--output", folder / "out"},
                               signal_when(kLoading, signal));
    CHECK(ran.status == 128 + signal);
    CHECK(ran.out.empty());
    CHECK(fs::is_empty(folder.path()));
    while_loading = ran.err.find("interrupted") == std::string::npos;
  }
  CHECK(while_loading);
}

TEST_CASE("a signal while chat or score loads ends it with the signal's status", "[cpu][cli]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
  CAPTURE(signal);
  const auto chat = run_ingot({"chat", "--model", tiny_model()}, signal_when(kLoading, signal));
  CHECK(chat.status == 128 + signal);
  CHECK(chat.out.empty());
  // Long enough to be still at it.
  const auto score =
      run_ingot({"score", "--model", tiny_model(), "--json", "--text", std::string(10'000, 'x')},
                signal_when(kLoading, signal));
  CHECK(score.status == 128 + signal);
  CHECK(score.out.empty());
}

TEST_CASE("a signal while generate waits for input ends it and leaves nothing", "[cpu][cli]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
  CAPTURE(signal);
  const TempDir folder;
  ProgramOptions options = signal_when("line 1: ", signal);
  options.input = "null\n";
  const auto ran = run_ingot({"generate", "--model", tiny_model(), "--input", "-", "--format",
                              "jsonl", "--text", "--output", "-"},
                             options);
  CHECK(ran.status == 128 + signal);
  CHECK(ran.err.find("interrupted: ") != std::string::npos);
  CHECK(ran.out == "\n");  // the failed line
}

TEST_CASE("a signal ends an answer in a piped chat with the signal's status", "[cpu][cli]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
  CAPTURE(signal);
  const TempDir folder;
  ProgramOptions options = signal_when("", signal);
  options.wait_for_output = 1;
  options.input = "hello\nnever asked\n";
  const auto ran = run_ingot(
      {"chat", "--model", endless_model(folder), "--temperature", "0", "--stats"}, options);
  CHECK(ran.status == 128 + signal);
  CHECK(ran.out.ends_with('\n'));
  CHECK(ran.err.find("answer") != std::string::npos);
  CHECK(ran.err.find("cancelled") != std::string::npos);
  CHECK(ran.err.find("cancelled") == ran.err.rfind("cancelled"));  // the second was never asked
}

TEST_CASE("a signal at the empty prompt of a piped chat ends it with the signal's status",
          "[cpu][cli]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
  CAPTURE(signal);
  ProgramOptions options = signal_when("prompt_tokens", signal);
  options.input = "hello\n";
  const auto ran = run_ingot({"chat", "--model", tiny_model(), "--device", "cpu", "--stats",
                              "--max-tokens", "2", "--temperature", "0"},
                             options);
  CHECK(ran.status == 128 + signal);
  CHECK(!ran.out.empty());
}

TEST_CASE("a second interrupt ends an answer that does not stop", "[cpu][cli]") {
  const TempDir folder;
  ProgramOptions options = signal_when("", SIGINT);
  options.wait_for_output = 1;
  options.then = [](int process) {
    ::kill(process, SIGINT);
    ::kill(process, SIGINT);
  };
  options.input = "hello\n";
  const auto ran =
      run_ingot({"chat", "--model", endless_model(folder), "--temperature", "0"}, options);
  CHECK(ran.status == 130);
}
