#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/screen.hpp"

namespace ingot::test {

struct PtyOptions {
  int columns = 80;
  int rows = 24;
  std::vector<std::string> environment = {"HOME=/nonexistent", "TERM=xterm-256color"};
  std::string program;     ///< empty: INGOT_TEST_PROGRAM, else build/ingot
  bool as_nobody = false;  ///< without root's rights
};

/// build/ingot (INGOT_TEST_PROGRAM) on a terminal of its own. Ended and reaped with the object. All
/// waits are kPatience times as long as they are told.
class PtyProgram {
 public:
  explicit PtyProgram(const std::vector<std::string>& arguments, const PtyOptions& options = {});
  PtyProgram(const PtyProgram&) = delete;
  PtyProgram& operator=(const PtyProgram&) = delete;
  ~PtyProgram();

  /// Types. Takes in what the program writes meanwhile.
  void send(std::string_view keys);
  /// Waits until this appears in what came since the last wait that was successful; what comes
  /// behind it belongs to the next wait. False after `seconds`, or when the program has ended.
  bool wait_for(std::string_view text, double seconds = 60);
  /// Waits until so many more bytes have come; they stay for the next wait_for().
  bool wait_for_more(std::size_t bytes, double seconds = 60);
  /// Takes in what comes until nothing has come for so long.
  void settle(std::chrono::milliseconds quiet);
  void resize(int columns, int rows);
  void signal(int number);
  /// The terminal goes away.
  void hang_up();
  /// Waits for the end: exit status, or 128 + signal; -1 where it does not end.
  int wait(double seconds = 60);

  /// All that was written.
  const std::string& out() const { return out_; }
  const Screen& screen() const { return screen_; }
  /// When, in seconds from the start, out() had grown to how many bytes.
  struct Arrival {
    double time_s;
    std::size_t bytes;
  };
  const std::vector<Arrival>& arrivals() const { return arrivals_; }
  /// Whether the terminal would show what is typed.
  bool echoes() const;

 private:
  bool take(int timeout_ms);

  pid_t child_ = -1;
  int master_ = -1;
  int status_ = -1;
  std::string out_;
  std::size_t seen_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Arrival> arrivals_;
  Screen screen_;
};

}  // namespace ingot::test
