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
volatile std::sig_atomic_t wake_write = -1;

struct sigaction previous_int, previous_term, previous_hup;

void remember(int signal) {
  const int error = errno;
  pending_signal = signal;
  (void)!::write(wake_write, "", 1);
  errno = error;
}

void listen() {
  struct sigaction action {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  // SA_RESETHAND: the second signal is the end.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Under nohup it stays ignored.
  if (previous_hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  pending_signal = 0;
  if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw EngineError(ErrorCode::io,
                      std::string("preparing for signals: pipe: ") + std::strerror(errno));
  }
  wake_write = wake_[1];
  sigaction(SIGINT, nullptr, &previous_int);
  sigaction(SIGTERM, nullptr, &previous_term);
  sigaction(SIGHUP, nullptr, &previous_hup);
  listen();
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
  sigaction(SIGHUP, &previous_hup, nullptr);
  wake_write = -1;
  ::close(wake_[0]);
  ::close(wake_[1]);
}

int InterruptGuard::requested() const {
  return pending_signal;
}

void InterruptGuard::reset() {
  pending_signal = 0;
  char bytes[64];
  while (::read(wake_[0], bytes, sizeof(bytes)) > 0) {
  }
  listen();
}

void ignore_closed_pipes() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigemptyset(&action.sa_mask);
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace ingot
