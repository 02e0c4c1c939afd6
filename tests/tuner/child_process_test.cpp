#include "tuner/child_process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "tests/tuner/answering_child.hpp"

using namespace ingot;
using namespace std::chrono_literals;

namespace {

/// Stands for a driver: state of a process that its forked copies would have and must not use.
bool driver_started = false;

std::string answer(const std::string& question) {
  if (question == "pid") return std::to_string(::getpid());
  if (question == "driver") return driver_started ? "started by another process" : "starts";
  if (question == "fault") throw std::runtime_error("an illegal address");
  if (question == "crash") {
    (void)::signal(SIGSEGV, SIG_DFL);  // not a sanitizer's handler
    (void)::raise(SIGSEGV);
  }
  if (question == "hang") std::this_thread::sleep_for(60s);
  return question;
}

ChildProcess make_child(int most_lost = 10) {
  return ChildProcess({.command = {"/proc/self/exe", "answer"},
                       .patience = 300ms,
                       .start_patience = 10s,
                       .most_lost = most_lost});
}
std::string ask(ChildProcess& child, const std::string& question) {
  return value_or_throw(child.ask(question));
}

}  // namespace

int test::answering_child() {
  return answer_questions(Subprocess::kChildChannel, answer);
}

TEST_CASE("one child answers all questions, and is not this process", "[cpu][tuner]") {
  ChildProcess child = make_child();
  const std::string pid = ask(child, "pid");
  CHECK(pid != std::to_string(::getpid()));
  CHECK(ask(child, "word") == "word");
  CHECK(ask(child, "").empty());
  CHECK(ask(child, "pid") == pid);
  CHECK(child.started() == 1);
}

TEST_CASE("a child does not inherit a started driver, first or later", "[cpu][tuner]") {
  driver_started = true;
  ChildProcess child = make_child();
  CHECK(ask(child, "driver") == "starts");
  CHECK_FALSE(child.ask("crash"));
  CHECK(ask(child, "driver") == "starts");
  driver_started = false;
}

TEST_CASE("a question that faults, crashes or hangs costs only its own answer", "[cpu][tuner]") {
  ChildProcess child = make_child();
  const std::string pid = ask(child, "pid");
  const auto lost = [&](const std::string& question) {
    const auto got = child.ask(question);
    REQUIRE_FALSE(got);
    CHECK(got.error().code == ErrorCode::cuda);
    return got.error().message;
  };
  CHECK(lost("fault") == "exit status 3: an illegal address");
  CHECK(ask(child, "pid") != pid);
  CHECK_THAT(lost("crash"), Catch::StartsWith("signal 11"));
  CHECK(ask(child, "word") == "word");
  CHECK_THAT(lost("hang"), Catch::StartsWith("hangs: no answer for 0.3 s"));
  CHECK(ask(child, "word") == "word");
  CHECK(child.started() == 4);
  CHECK(child.lost() == 3);
}

TEST_CASE("too many lost children end the questions", "[cpu][tuner]") {
  ChildProcess child = make_child(2);
  CHECK_FALSE(child.ask("crash"));
  CHECK_FALSE(child.ask("crash"));
  const auto refused = child.ask("word");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::io);
  CHECK(child.started() == 2);
  ChildProcess missing({.command = {"/no/such/program"}});
  CHECK_FALSE(missing.ask("word"));
}
