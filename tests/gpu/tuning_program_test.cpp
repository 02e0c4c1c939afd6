// What becomes of a tuning that a signal ends, and what a first run does: the built program on a
// GPU.
#include <fmt/format.h>

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

/// Its caches lie below `home`; NVIDIA's libraries are where this program has them.
test::ProgramResult run(const test::TempDir& home, const std::vector<std::string>& arguments,
                        test::ProgramOptions options = {}) {
  options.environment = {"HOME=/nonexistent", "TERM=dumb",
                         "XDG_CACHE_HOME=" + home.path().string()};
  if (const char* path = std::getenv("INGOT_LIBRARY_PATH"))
    options.environment.push_back(fmt::format("INGOT_LIBRARY_PATH={}", path));
  return test::run_ingot(arguments, options);
}

fs::path configs() {
  return test::golden_dir().parent_path().parent_path() / "configs";
}

std::vector<std::string> prewarm(const std::string& batches) {
  return {"prewarm", "--config",  configs() / "deepseek-v4-flash/config.json",
          "--tp",    "8",         "--batch",
          batches,   "--context", "4096"};
}

int files_below(const fs::path& folder) {
  int count = 0;
  if (!fs::exists(folder)) return count;
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
  const test::TempDir home;
  const auto records = [&] { return files_below(home / "ingot/tuning"); };
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    CAPTURE(signal);
    const int before = records();
    test::ProgramOptions options;
    options.wait_for = "tuning ";  // its progress, ten seconds after the tuning began
    options.then = [&](int process) { ::kill(process, signal); };
    // More than a card tunes in that time.
    const auto ended = run(home, prewarm("1,2,4,8,16,32,64,128,256"), options);
    INFO(ended.err);
    REQUIRE_THAT(ended.err, Catch::Contains("tuning "));
    CHECK(ended.status == 128 + signal);
    CHECK(records() > before);
    const auto verified = run(home, {"cache", "verify"});
    CHECK(verified.status == 0);
    CHECK_THAT(verified.out, Catch::Contains(" are whole, 0 damaged"));
  }
  const auto finished = run(home, prewarm("1"));
  CHECK(finished.status == 0);
  CHECK_THAT(finished.out,
             Catch::Contains(", 0 cut short, 0 left, 0 failed") && !Catch::Contains(", 0 before)"));
  const int all = records();
  const auto again = run(home, prewarm("1"));
  CHECK(again.status == 0);
  CHECK_THAT(again.out, Catch::Contains("(0 now"));
  CHECK(records() == all);
}

TEST_CASE("the first answer on a GPU is preceded by a tuning within its budget, the second by none",
          "[gpu][tuning][program][long][alone]") {
  if (!is_possible()) return;
  const auto model = configs() / "models/ingot-tiny";
  if (!fs::exists(model) && test::skip("needs the built-in model")) return;
  const test::TempDir home;
  constexpr int kBudget_s = 5;
  const auto chat = [&] {
    const auto begin = std::chrono::steady_clock::now();
    auto result = run(home, {"chat", "--model", model.string(), "--device", "cuda", "--temperature",
                             "0", "--max-tokens", "8", "--context", "2048", "--tuning-budget",
                             std::to_string(kBudget_s), "-p", "What is 2+3?"});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    INFO(result.err);
    CHECK(result.status == 0);
    return std::pair(std::move(result), seconds);
  };
  const auto [first, first_s] = chat();
  CHECK_THAT(first.err, Catch::Contains("choosing kernels for it, at most 5 s"));
  const auto [second, second_s] = chat();
  CHECK(second.err.find("choosing kernels") == std::string::npos);
  CHECK(second.out == first.out);
  // Beside it: the defaults are compiled, the model is loaded, a trial in work is ended.
  CHECK(first_s < kBudget_s + 30);
  CHECK(second_s < first_s);
  fmt::print("the first run took {:.1f} s, the second {:.1f} s\n", first_s, second_s);
}
