// What becomes of a tuning that a signal ends, and what a first run does: the built program on a
// GPU, with kernels of a small model.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "tests/support/gpu.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
namespace fs = std::filesystem;

namespace {

/// The program's environment, with where NVIDIA's libraries are.
std::vector<std::string> environment() {
  std::vector<std::string> all{"HOME=/nonexistent", "TERM=dumb"};
  if (const char* path = std::getenv("INGOT_LIBRARY_PATH"))
    all.push_back(fmt::format("INGOT_LIBRARY_PATH={}", path));
  return all;
}

test::ProgramResult run(std::vector<std::string> arguments, test::ProgramOptions options = {}) {
  options.environment = environment();
  return test::run_ingot(arguments, options);
}

std::vector<std::string> prewarm(const test::TempDir& folder) {
  return {"prewarm", "--config",    test::golden_dir() / "reference/tiny.json",
          "--batch", "1",           "--context",
          "2048",    "--cache-dir", (folder / "cache").string()};
}

int files_below(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    count += entry.is_regular_file() ? 1 : 0;
  return count;
}

/// A GPU, and the program beside this one or where INGOT_TEST_PROGRAM says.
bool is_possible() {
  if (!test::driver_or_skip(1)) return false;
  if (fs::exists(test::ingot_program())) return true;
  test::skip(fmt::format("needs the program: {} is not there", test::ingot_program()));
  return false;
}

}  // namespace

TEST_CASE("a tuning that is killed or interrupted leaves whole entries, and the next goes on",
          "[gpu][tuning][program][long]") {
  if (!is_possible()) return;
  const test::TempDir folder;
  int interrupted = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    test::ProgramOptions options;
    options.wait_for = "tuning ";  // of the progress, ten seconds after its beginning
    options.then = [&](int process) { ::kill(process, signal); };
    const auto ended = run(prewarm(folder), options);
    INFO(ended.err);
    if (ended.status == 0 && ended.err.find("tuning ") == std::string::npos) {
      WARN("all was tuned before signal " << signal);  // a fast machine
      break;
    }
    ++interrupted;
    CHECK(ended.status == 128 + signal);
    const auto verified = run({"cache", "verify", "--cache-dir", (folder / "cache").string()});
    CHECK(verified.status == 0);
    CHECK_THAT(verified.out, Catch::Contains(" are whole, 0 damaged"));
  }
  CHECK(interrupted > 0);
  const auto finished = run(prewarm(folder));
  CHECK(finished.status == 0);
  CHECK_THAT(finished.out, Catch::Contains(", 0 cut short, 0 left, 0 failed"));
  const int files = files_below(folder / "cache");
  const auto again = run(prewarm(folder));
  CHECK(again.status == 0);
  CHECK_THAT(again.out, Catch::Contains("(0 now"));
  CHECK(files_below(folder / "cache") == files);
  fmt::print("after three signals: {}", finished.out.substr(0, finished.out.find('\n') + 1));
}

TEST_CASE("the first answer on a GPU is preceded by a tuning within its budget, the second by none",
          "[gpu][tuning][program][long]") {
  if (!is_possible()) return;
  const auto model = test::golden_dir().parent_path().parent_path() / "configs/models/ingot-tiny";
  if (!fs::exists(model) && test::skip("needs the built-in model")) return;
  const test::TempDir folder;
  constexpr int kBudget_s = 15;
  const auto chat = [&] {
    const auto begin = std::chrono::steady_clock::now();
    auto result =
        run({"chat", "--model", model.string(), "--device", "cuda", "--temperature", "0",
             "--max-tokens", "8", "--context", "2048", "--tuning-budget", std::to_string(kBudget_s),
             "--cache-dir", (folder / "cache").string(), "-p", "What is 2+3?"});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    INFO(result.err);
    CHECK(result.status == 0);
    return std::pair(std::move(result), seconds);
  };
  const auto [first, first_s] = chat();
  CHECK_THAT(first.err, Catch::Contains("choosing kernels for it, at most 15 s"));
  const auto [second, second_s] = chat();
  CHECK(second.err.find("choosing kernels") == std::string::npos);
  CHECK(second.out == first.out);
  // Beside it: the defaults are compiled, the model is loaded, a trial in work is ended.
  CHECK(first_s < kBudget_s + 30);
  CHECK(second_s < first_s);
  fmt::print("the first run took {:.1f} s, the second {:.1f} s\n", first_s, second_s);
}
