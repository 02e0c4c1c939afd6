#include "src/cli/interrupt.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "runtime/base/error.hpp"

namespace ingot {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t pending_signal = 0;
volatile std::sig_atomic_t signal_count = 0;
volatile std::sig_atomic_t window_changed = 0;
volatile std::sig_atomic_t wake_write = -1;

struct sigaction previous_int, previous_term, previous_hup, previous_winch;

void wake() {
  const int error = errno;
  (void)!::write(wake_write, "", 1);
  errno = error;
}

void remember(int signal) {
  pending_signal = signal;
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
  sigaction(SIGTERM, &action, nullptr);
  // Under nohup it stays ignored.
  if (previous_hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
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
  sigaction(SIGTERM, nullptr, &previous_term);
  sigaction(SIGHUP, nullptr, &previous_hup);
  sigaction(SIGWINCH, nullptr, &previous_winch);
  listen(listening_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
  sigaction(SIGHUP, &previous_hup, nullptr);
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
}

}  // namespace ingot
