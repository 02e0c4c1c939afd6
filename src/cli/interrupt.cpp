#include "src/cli/interrupt.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string>

#include "runtime/base/error.hpp"

namespace ingot {
namespace {

// A signal handler can reach nothing but a global. A signal may come to any thread, so none of
// these is plain; those that need a lock would be no handler's.
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
static_assert(std::atomic<pthread_t>::is_always_lock_free);
std::atomic<int> pending_signal{0};
std::atomic<int> signal_count{0};
std::atomic<int> window_changed{0};
std::atomic<int> wake_write{-1};
std::atomic<pthread_t> listener{};
/// Which signals have come.
std::atomic<bool> was_heard[NSIG];
/// SIGINT asks for no end.
std::atomic<bool> interrupt_is_a_key{false};
/// When the end was first asked for, by the monotonic clock; 0: it was not.
std::atomic<std::int64_t> asked_at_ms{0};

/// SIGINT and SIGWINCH are listened to in their own ways; these all in the same one.
constexpr int kEnds[] = {SIGTERM, SIGHUP, SIGQUIT, SIGXCPU};
struct sigaction previous_int, previous_winch, previous_ends[std::size(kEnds)];

/// What a handler does may change errno under the feet of what it interrupted.
class KeepErrno {
 public:
  KeepErrno() : before_(errno) {}
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;
  ~KeepErrno() { errno = before_; }

 private:
  int before_;
};

/// Whether this is the thread that listens; the signal goes there otherwise. So no handler runs
/// beside the end of the object that it writes to.
bool listens(int signal) {
  const pthread_t to = listener;
  if (::pthread_equal(to, ::pthread_self()) != 0) return true;
  (void)::pthread_kill(to, signal);
  return false;
}

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void wake() {
  (void)!::write(wake_write, "", 1);
}

void note(int signal) {
  // SIGINT may mean less than the end: it does not hide one that came before.
  int none = 0;
  if (signal != SIGINT) {
    pending_signal = signal;
  } else {
    pending_signal.compare_exchange_strong(none, signal);
  }
  ++signal_count;
  wake();
}

/// As if nobody had listened. It comes when the handler returns.
void end_by(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
  (void)::pthread_kill(::pthread_self(), signal);
}

void remember(int signal) {
  const KeepErrno keep;
  if (!listens(signal)) return;
  note(signal);
  if (signal == SIGINT && interrupt_is_a_key) return;
  if (was_heard[signal].exchange(true)) end_by(signal);
}

void remember_patiently(int signal) {
  const KeepErrno keep;
  if (!listens(signal)) return;
  note(signal);
  if (signal == SIGINT && interrupt_is_a_key) return;
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  if (asked_at_ms.compare_exchange_strong(first, now)) return;
  const bool may_insist = signal == SIGINT || signal == SIGTERM || signal == SIGQUIT;
  if (may_insist && now - first >= kInsistsAfter.count()) end_by(signal);
}

void forget_all() {
  pending_signal = 0;
  signal_count = 0;
  asked_at_ms = 0;
  for (auto& heard : was_heard)
    heard = false;
}

void remember_window(int signal) {
  const KeepErrno keep;
  if (!listens(signal)) return;
  window_changed = 1;
  wake();
}

void listen(Listening listening, Insisting insisting) {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  if (listening == Listening::to_a_terminal) {
    action.sa_handler = remember_window;
    action.sa_flags = SA_RESTART;
    sigaction(SIGWINCH, &action, nullptr);
  }
  action.sa_handler = insisting == Insisting::later ? remember_patiently : remember;
  action.sa_flags = 0;
  sigaction(SIGINT, &action, nullptr);
  for (std::size_t i = 0; i < std::size(kEnds); ++i) {
    // Under nohup SIGHUP stays ignored; SIGQUIT does where a shell runs us in the background.
    const bool may_be_ignored = kEnds[i] != SIGTERM;
    if (may_be_ignored && previous_ends[i].sa_handler == SIG_IGN) continue;
    sigaction(kEnds[i], &action, nullptr);
  }
}

}  // namespace

InterruptGuard::InterruptGuard(Listening listening, Insisting insisting)
    : listening_(listening), insisting_(insisting) {
  forget_all();
  window_changed = 0;
  interrupt_is_a_key = listening_ == Listening::to_a_terminal;
  listener = ::pthread_self();
  if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw EngineError(ErrorCode::io,
                      std::string("preparing for signals: pipe: ") + std::strerror(errno));
  }
  wake_write = wake_[1];
  sigaction(SIGINT, nullptr, &previous_int);
  for (std::size_t i = 0; i < std::size(kEnds); ++i)
    sigaction(kEnds[i], nullptr, &previous_ends[i]);
  sigaction(SIGWINCH, nullptr, &previous_winch);
  listen(listening_, insisting_);
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
  forget_all();
  char bytes[64];
  while (::read(wake_[0], bytes, sizeof(bytes)) > 0) {
  }
  listen(listening_, insisting_);
}

void InterruptGuard::leave() {
  interrupt_is_a_key = false;
}

bool InterruptGuard::take_interrupt() {
  char bytes[64];
  while (::read(wake_[0], bytes, sizeof(bytes)) > 0) {
  }
  int interrupt = SIGINT;
  if (!pending_signal.compare_exchange_strong(interrupt, 0)) return false;
  signal_count = 0;
  return true;
}

bool InterruptGuard::take_resize() {
  const bool changed = window_changed.exchange(0) != 0;
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
