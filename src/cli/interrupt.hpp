#pragma once

#include <chrono>

namespace ingot {

/// Whether a terminal is before us: there SIGINT is a key that may be pressed any number of times,
/// and the window's size matters.
enum class Listening { to_programs, to_a_terminal };

/// What ends a program that has been asked to end, and has not yet.
enum class Insisting {
  at_once,  ///< a second signal of the same kind
  /// SIGINT, SIGTERM or SIGQUIT, kInsistsAfter behind the first signal: a user who insists. A
  /// terminal that closes, the shell in it and a service manager all signal within milliseconds,
  /// and what is being saved then is not lost. SIGHUP and SIGXCPU end nothing, however often.
  later,
};
inline constexpr std::chrono::milliseconds kInsistsAfter{1000};

/// SIGINT, SIGTERM, SIGQUIT, SIGXCPU and SIGHUP (unless it is ignored) as a request instead of an
/// end. While an object of this class lives, the first signal sets a flag that loops look at
/// between steps; who insists ends the program as if nobody had listened (by SIGINT not where a
/// terminal is listened to). Only one object may live at a time, on the main thread, which hears
/// all signals, whichever thread they came to; what handlers were there before comes back with its
/// end.
class InterruptGuard {
 public:
  explicit InterruptGuard(Listening listening = Listening::to_programs,
                          Insisting insisting = Insisting::at_once);
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  /// The signal that came, or 0.
  int requested() const;
  /// How many came since the start, or since reset().
  int count() const;
  /// Readable once a signal came: who waits for input waits for this beside it. A flag alone could
  /// be set just before the wait begins.
  int wake_fd() const { return wake_[0]; }
  /// Forgets it, and listens for a first one again.
  void reset();
  /// Forgets SIGINT, and nothing else that came; whether it was there. As with take_resize(), ask
  /// requested() afterwards.
  bool take_interrupt();
  /// From here on SIGINT asks for the end, also where it was a key before.
  void leave();
  /// Whether the terminal's window changed since the last time. Its wake-up is over, a signal's is
  /// not lost: ask requested() afterwards.
  bool take_resize();

 private:
  Listening listening_;
  Insisting insisting_;
  int wake_[2];  ///< a pipe
};

/// The exit status of a program that a signal ended: 128 + number, as shells have it.
constexpr int interrupted_status(int signal) {
  return 128 + signal;
}

/// The status of a program whose reader has gone: as if SIGPIPE had ended it.
constexpr int kClosedPipeStatus = interrupted_status(13);

/// Writing to a closed pipe, or beyond the size that files may have, becomes an error of that write
/// instead of the end of the program.
void ignore_closed_pipes();

}  // namespace ingot
