#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace ingot {

/// Progress of long work on standard error: one line that rewrites itself on a terminal, else a
/// plain line every ten seconds. Nothing for work of less than a second. Any thread may call it.
class ProgressLine {
 public:
  /// @param what "hashing", "writing"; stands in front of every line
  explicit ProgressLine(std::string what);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// Clears the line on a terminal.
  ~ProgressLine();

  void update(std::uint64_t bytes_done, std::uint64_t bytes_total);

 private:
  using Clock = std::chrono::steady_clock;

  std::mutex mutex_;
  std::string what_;
  bool is_terminal_;
  Clock::time_point start_;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace ingot
