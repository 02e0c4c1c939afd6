// The one main of every test program: Catch2, plus a last line that tools/test adds up.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/support/notes.hpp"
#include "tests/support/skip.hpp"

namespace {

int passed = 0;
int failed = 0;
int skipped = 0;  // cases; one may give a reason for each of its parts
int reasons = 0;  // given for skipping, in the cases that have ended

/// A test that needs a GPU may hang in a driver or on another rank; nothing but ending the process
/// helps then. The message says which test and what it noted last.
constexpr unsigned kGpuTestSeconds = 60, kLongGpuTestSeconds = 180;
char running_test[256];

void end_hung_test(int) {
  const auto say = [](const char* text) {
    if (::write(STDOUT_FILENO, text, std::strlen(text)) < 0) ::_exit(125);
  };
  say("\nFAILED: hung: ");
  say(running_test);
  say("\n");
  ingot::test::write_notes(STDOUT_FILENO);
  ::_exit(124);
}

/// For who runs the rest where a case takes the process down.
void tell(const char* what, const std::string& name) {
  if (std::getenv("INGOT_TEST_CASES") == nullptr) return;
  fmt::print("case {}: {}\n", what, name);
  std::fflush(stdout);
}

struct CaseCounter : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    tell("begins", info.name);
    const auto tagged = [&](const char* tag) {
      return std::find(info.lcaseTags.begin(), info.lcaseTags.end(), tag) != info.lcaseTags.end();
    };
    if (!tagged("gpu")) return;
    std::strncpy(running_test, info.name.c_str(), sizeof running_test - 1);
    std::fflush(stdout);
    (void)std::signal(SIGALRM, end_hung_test);
    ::alarm(tagged("long") ? kLongGpuTestSeconds : kGpuTestSeconds);
  }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ::alarm(0);
    const int given = ingot::test::skip_reasons();
    const bool skips = given > reasons;
    reasons = given;
    const bool fails = stats.totals.testCases.failed > 0;
    ++(fails ? failed : skips ? skipped : passed);
    tell(fails ? "failed" : skips ? "skipped" : "passed", stats.testInfo.name);
  }
};
CATCH_REGISTER_LISTENER(CaseCounter)

}  // namespace

/// A test program may define this to play the child in tests of child processes: it is called with
/// the arguments of a hidden command and returns its exit status, or -1 when it knows no such one.
__attribute__((weak)) int ingot_test_hidden_command(int argc, char** argv);

int main(int argc, char** argv) {
  if (ingot_test_hidden_command != nullptr && argc > 1) {
    if (const int status = ingot_test_hidden_command(argc, argv); status >= 0) return status;
  }
  Catch::Session session;
  std::string suite = "tests";
  session.cli(session.cli() |
              Catch::clara::Opt(suite, "name")["--suite"]("name printed on the last line"));
  if (const int status = session.applyCommandLine(argc, argv); status != 0) return status;
  const int status = session.run();
  fmt::print("suite {}: {} passed, {} failed, {} skipped\n", suite, passed, failed, skipped);
  return status;
}
