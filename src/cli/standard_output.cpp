#include "src/cli/standard_output.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/error.hpp"
#include "runtime/base/why_not.hpp"

namespace ingot {
namespace {

/// A terminal that hung up answers EIO, as a broken disk does.
bool hung_up() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) > 0 && (out.revents & POLLHUP) != 0;
}

}  // namespace

void write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data(), text.size());
    if (wrote >= 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EPIPE || (error == EIO && hung_up())) throw ClosedPipe();
    throw EngineError(ErrorCode::io,
                      fmt::format("writing to standard output: {}", why_not_written(error)));
  }
}

void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(STDERR_FILENO, text.data(), text.size());
    if (wrote < 0 && errno != EINTR) return;
    if (wrote > 0) text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

}  // namespace ingot
