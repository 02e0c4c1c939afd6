#include "src/cli/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace ingot {
namespace {

constexpr double kTerminalInterval_s = 0.1;
constexpr double kPlainInterval_s = 10;

/// At most `columns` characters of UTF-8.
std::string_view cut(std::string_view line, int columns) {
  int seen = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xC0) == 0x80) continue;
    if (seen++ == columns) return line.substr(0, i);
  }
  return line;
}

}  // namespace

Progress::Output Progress::standard_error() {
  Output output;
  output.write = [](std::string_view bytes) {
    (void)!::write(STDERR_FILENO, bytes.data(), bytes.size());
  };
  output.now_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  output.terminal = ::isatty(STDERR_FILENO) == 1;
  output.columns = [] {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? int{size.ws_col}
                                                                             : 80;
  };
  return output;
}

Progress::Progress(Output output) : output_(std::move(output)), shown_at_(output_.now_s()) {}

bool Progress::due() const {
  return output_.now_s() - shown_at_ >= (output_.terminal ? kTerminalInterval_s : kPlainInterval_s);
}

void Progress::show(std::string_view line) {
  shown_at_ = output_.now_s();
  if (output_.terminal) {
    // One column stays free: some terminals wrap when the last one is written.
    output_.write("\r" + std::string(cut(line, output_.columns() - 1)) + "\x1b[K");
    on_screen_ = true;
  } else {
    output_.write(std::string(line) + "\n");
  }
}

void Progress::clear() {
  if (on_screen_) output_.write("\r\x1b[K");
  on_screen_ = false;
}

}  // namespace ingot
