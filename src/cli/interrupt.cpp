#include "src/cli/interrupt.hpp"

#include <csignal>

namespace ingot {
namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t pending_signal = 0;

struct sigaction previous_int, previous_term;

void remember(int signal) {
  pending_signal = signal;
}

void listen() {
  struct sigaction action {};
  action.sa_handler = remember;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read of the terminal returns. SA_RESETHAND: the second signal is the end.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  pending_signal = 0;
  sigaction(SIGINT, nullptr, &previous_int);
  sigaction(SIGTERM, nullptr, &previous_term);
  listen();
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

int InterruptGuard::requested() const {
  return pending_signal;
}

void InterruptGuard::reset() {
  pending_signal = 0;
  listen();
}

void ignore_closed_pipes() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigemptyset(&action.sa_mask);
  sigaction(SIGPIPE, &action, nullptr);
}

}  // namespace ingot
