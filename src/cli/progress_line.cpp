#include "src/cli/progress_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "runtime/base/log.hpp"

namespace ingot {

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      next_(start_ + std::chrono::seconds(1)) {}

ProgressLine::~ProgressLine() {
  if (shown_ && is_terminal_) std::fputs("\r\x1b[K", stderr);
}

void ProgressLine::update(std::uint64_t bytes_done, std::uint64_t bytes_total) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10));
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(bytes_done) / seconds;
  const double left = static_cast<double>(bytes_total - bytes_done) / rate;
  const std::string line = fmt::format("{} {:.1f} of {:.1f} GB, {:.2f} GB/s, {:.0f} s left", what_,
                                       static_cast<double>(bytes_done) / 1e9,
                                       static_cast<double>(bytes_total) / 1e9, rate / 1e9, left);
  if (is_terminal_) {
    fmt::print(stderr, "\r{}\x1b[K", line);
    std::fflush(stderr);
    shown_ = true;
  } else {
    log::info("{}", line);
  }
}

}  // namespace ingot
