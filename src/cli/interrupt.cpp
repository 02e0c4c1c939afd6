#include "src/cli/interrupt.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>

#include "runtime/base/error.hpp"

namespace ingot {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t pending_signal = 0;
volatile std::sig_atomic_t signal_count = 0;
volatile std::sig_atomic_t window_changed = 0;
volatile std::sig_atomic_t wake_write = -1;

/// SIGINT and SIGWINCH are listened to in their own ways; these all in the same one.
constexpr int kEnds[] = {SIGTERM, SIGHUP, SIGQUIT, SIGXCPU};
struct sigaction previous_int, previous_winch, previous_ends[std::size(kEnds)];

void wake() {
  const int error = errno;
  (void)!::write(wake_write, "", 1);
  errno = error;
}

void remember(int signal) {
  // SIGINT may mean less than the end: it does not hide one that came before.
  if (pending_signal == 0 || signal != SIGINT) pending_signal = signal;
  signal_count = signal_count + 1;
  wake();
}

void remember_window(int) {
  window_changed = 1;
  wake();
}

void listen(Listening listening) {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  if (listening == Listening::to_a_terminal) {
    action.sa_handler = remember_window;
    action.sa_flags = SA_RESTART;
    sigaction(SIGWINCH, &action, nullptr);
  }
  action.sa_handler = remember;
  action.sa_flags = 0;
  if (listening == Listening::to_a_terminal) sigaction(SIGINT, &action, nullptr);
  // SA_RESETHAND: the second signal is the end.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  if (listening == Listening::to_programs) sigaction(SIGINT, &action, nullptr);
  for (std::size_t i = 0; i < std::size(kEnds); ++i) {
    // Under nohup SIGHUP stays ignored; SIGQUIT does where a shell runs us in the background.
    const bool may_be_ignored = kEnds[i] != SIGTERM;
    if (may_be_ignored && previous_ends[i].sa_handler == SIG_IGN) continue;
    sigaction(kEnds[i], &action, nullptr);
  }
}

}  // namespace

InterruptGuard::InterruptGuard(Listening listening) : listening_(listening) {
  pending_signal = 0;
  signal_count = 0;
  window_changed = 0;
  if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw EngineError(ErrorCode::io,
                      std::string("preparing for signals: pipe: ") + std::strerror(errno));
  }
  wake_write = wake_[1];
  sigaction(SIGINT, nullptr, &previous_int);
  for (std::size_t i = 0; i < std::size(kEnds); ++i)
    sigaction(kEnds[i], nullptr, &previous_ends[i]);
  sigaction(SIGWINCH, nullptr, &previous_winch);
  listen(listening_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  for (std::size_t i = 0; i < std::size(kEnds); ++i)
    sigaction(kEnds[i], &previous_ends[i], nullptr);
  sigaction(SIGWINCH, &previous_winch, nullptr);
  wake_write = -1;
  ::close(wake_[0]);
  ::close(wake_[1]);
}

int InterruptGuard::requested() const {
  return pending_signal;
}

int InterruptGuard::count() const {
  return signal_count;
}

void InterruptGuard::reset() {
  pending_signal = 0;
  signal_count = 0;
  char bytes[64];
  while (::read(wake_[0], bytes, sizeof(bytes)) > 0) {
  }
  listen(listening_);
}

bool InterruptGuard::take_interrupt() {
  char bytes[64];
  while (::read(wake_[0], bytes, sizeof(bytes)) > 0) {
  }
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  const bool was_there = pending_signal == SIGINT;
  if (was_there) {
    pending_signal = 0;
    signal_count = 0;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return was_there;
}

bool InterruptGuard::take_resize() {
  // In this order: a change in between is seen by whoever asks for the size after us.
  const bool changed = window_changed != 0;
  window_changed = 0;
  char bytes[64];
  while (::read(wake_[0], bytes, sizeof(bytes)) > 0) {
  }
  return changed;
}

void ignore_closed_pipes() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigemptyset(&action.sa_mask);
  sigaction(SIGPIPE, &action, nullptr);
  sigaction(SIGXFSZ, &action, nullptr);
}

}  // namespace ingot
