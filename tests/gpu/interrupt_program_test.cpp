// What a Ctrl-C does to a run on a GPU, in every phase of it: the built program.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string_view>
#include <thread>

#include "runtime/cuda/context.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace ingot;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// From where a signal may come, and how much later at most.
struct Phase {
  const char* name;
  bool is_first_run;          ///< with empty caches
  const char* tuning_budget;  ///< seconds
  const char* said;           ///< to standard error; empty: a first byte of an answer
  int most_ms;
  int rounds;
  double ends_s;  ///< within so many seconds
};
constexpr Phase kPhases[] = {
    {"tuning", true, "60", "the first run with this model", 5000, 2, 3},
    // An answer ends behind the step in work, whose kernels are compiled first.
    {"compiling", true, "0", "ingot: device cuda", 2000, 2, 15},
    {"loading", false, "0", "ingot: device cuda", 500, 5, 3},
    {"reading prompts", false, "0", "ingot: device cuda", 1500, 5, 3},
    {"answering", false, "0", "", 400, 6, 3},
};

/// More questions than a run answers in the time that it has, the first a long one.
std::string questions(int count) {
  std::string text = "Repeat:";
  for (int i = 0; i < 3000; ++i)
    text += fmt::format(" word{}", i % 97);
  text += "\n";
  for (int i = 1; i < count; ++i)
    text += fmt::format("What is {} plus {}? Tell me a long story about it.\n", i, i % 7);
  return text;
}

std::vector<std::string> command(bool chat, const char* tuning_budget, const fs::path& input) {
  std::vector<std::string> arguments{chat ? "chat" : "generate", "--tuning-budget", tuning_budget,
                                     "--temperature", "0"};
  if (!chat) {
    const std::vector<std::string> more{"--input",  input, "--format",    "text",
                                        "--output", "-",   "--max-batch", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
  }
  return arguments;
}

test::ProgramOptions options_in(const fs::path& home) {
  test::ProgramOptions options;
  options.environment = {"HOME=/nonexistent", "TERM=dumb", "XDG_CACHE_HOME=" + home.string()};
  if (const char* path = std::getenv("INGOT_LIBRARY_PATH"))
    options.environment.push_back(fmt::format("INGOT_LIBRARY_PATH={}", path));
  return options;
}

/// Processes that were told of the folder on their command lines.
int processes_with(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    count += line.find(folder.string()) != std::string::npos ? 1 : 0;
  }
  return count;
}

int lines_with(const std::string& text, const char* word) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);)
    count += line.find(word) != std::string::npos ? 1 : 0;
  return count;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

TEST_CASE("Ctrl-C in any phase of a run on a GPU ends it, and gives the memory back",
          "[gpu][program][long][alone]") {
  const auto driver = test::driver_or_skip(1);
  if (!driver) return;
  if (!fs::exists(test::ingot_program())) {
    test::skip(fmt::format("needs the program: {} is not there", test::ingot_program()));
    return;
  }
  const cu::Context context = cu::Context::retain(driver, 0);
  const test::TempDir warm;
  std::ofstream(warm / "questions.txt") << questions(20'000);
  std::ofstream(warm / "few.txt") << questions(40);
  // What later runs find in the caches.
  for (const bool chat : {true, false}) {
    auto options = options_in(warm.path());
    const std::string few = questions(3);
    if (chat) options.input = few;
    const auto ran = test::run_ingot(command(chat, "0", warm / "few.txt"), options);
    CAPTURE(ran.err);
    REQUIRE(ran.status == 0);
  }
  const std::string many = questions(20'000);
  const std::uint64_t free_before = context.free_bytes();
  std::mt19937 random(20);
  for (const Phase& phase : kPhases) {
    for (int round = 0; round < phase.rounds; ++round) {
      const bool chat = round % 2 == 0;
      const int delay_ms = static_cast<int>(random() % static_cast<unsigned>(phase.most_ms));
      CAPTURE(phase.name, chat, delay_ms);
      const test::TempDir cold;
      const fs::path& home = phase.is_first_run ? cold.path() : warm.path();
      auto options = options_in(home);
      if (chat) options.input = many;
      options.wait_for = phase.said;
      options.wait_for_output = options.wait_for.empty() ? 1 : 0;
      Clock::time_point signalled;
      options.then = [&](int process) {
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
        (void)::kill(process, SIGINT);
        signalled = Clock::now();
        // Lines that are begun are answered after a first signal; a second one drops them.
        if (chat || std::string_view(phase.name) != "compiling") return;
        std::this_thread::sleep_for(std::chrono::seconds(2));
        (void)::kill(process, SIGINT);
      };
      const auto ran =
          test::run_ingot(command(chat, phase.tuning_budget, warm / "questions.txt"), options);
      const double took_s = seconds_since(signalled);
      CAPTURE(ran.err);
      CHECK(ran.status == 128 + SIGINT);
      CHECK(took_s < phase.ends_s);
      CHECK(lines_with(ran.err, "error") == 0);
      CHECK(lines_with(ran.err, "interrupted") <= 1);
      // A child's memory goes with it, a moment after the program.
      const auto ended = Clock::now();
      constexpr std::uint64_t kOthers = 16 << 20;  // what the driver may have for itself
      while ((context.free_bytes() + kOthers < free_before || processes_with(home) > 0) &&
             seconds_since(ended) < 10)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const double gone_s = seconds_since(ended);
      CHECK(context.free_bytes() + kOthers >= free_before);
      CHECK(processes_with(home) == 0);
      fmt::print("{} after {} ms, {}: ended in {:.2f} s, gone {:.2f} s later; \"{}\"\n", phase.name,
                 delay_ms, chat ? "chat" : "generate", took_s, gone_s, last_line(ran.err));
    }
  }
}
