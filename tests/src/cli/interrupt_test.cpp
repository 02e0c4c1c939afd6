#include "src/cli/interrupt.hpp"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <thread>

using namespace ingot;

namespace {

/// A thread that works until the end of the object.
class Worker {
 public:
  ~Worker() {
    stop_ = true;
    thread_.join();
  }
  void signal(int number) { REQUIRE(::pthread_kill(thread_.native_handle(), number) == 0); }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] {
    while (!stop_)
      ::usleep(200);
  }};
};

bool comes_within_a_minute(const InterruptGuard& guard) {
  pollfd wake{guard.wake_fd(), POLLIN, 0};
  for (int round = 0; round < 60 && guard.requested() == 0; ++round)
    (void)::poll(&wake, 1, 1000);
  return guard.requested() != 0;
}

}  // namespace

TEST_CASE("a signal that comes to any thread is heard by the one that listens", "[cpu][cli]") {
  Worker worker;
  for (int round = 0; round < 50; ++round) {
    const int signal = round % 2 == 0 ? SIGTERM : SIGINT;
    InterruptGuard guard(round % 3 == 0 ? Listening::to_a_terminal : Listening::to_programs,
                         round % 5 == 0 ? Insisting::later : Insisting::at_once);
    worker.signal(signal);
    REQUIRE(comes_within_a_minute(guard));
    CHECK(guard.requested() == signal);
    CHECK(guard.count() == 1);
    CHECK(guard.take_interrupt() == (signal == SIGINT));
  }
}

TEST_CASE("signals at once ask for the end once, and change no errno", "[cpu][cli]") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU);
  CAPTURE(signal);
  // Under nohup one may be ignored.
  const auto before = std::signal(signal, SIG_DFL);
  {
    InterruptGuard guard(Listening::to_programs, Insisting::later);
    // More than the pipe holds, where that may take a second: what cannot be written is an error of
    // the handler's own.
    const int times = signal == SIGHUP || signal == SIGXCPU ? 70'000 : 3;
    errno = EDOM;
    for (int i = 0; i < times; ++i)
      ::raise(signal);
    CHECK(errno == EDOM);
    CHECK(guard.requested() == signal);
    guard.reset();
    CHECK(guard.requested() == 0);
    ::raise(signal);
    CHECK(guard.requested() == signal);
  }
  std::signal(signal, before);
}

TEST_CASE("an interrupt is a key of a terminal until it is left", "[cpu][cli]") {
  InterruptGuard guard(Listening::to_a_terminal, Insisting::at_once);
  for (int i = 0; i < 3; ++i)
    ::raise(SIGINT);
  CHECK(guard.take_interrupt());
  guard.leave();
  ::raise(SIGINT);
  CHECK(guard.requested() == SIGINT);
}
