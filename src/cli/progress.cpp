#include "src/cli/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/printable.hpp"

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

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
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

void Progress::show(std::string_view text) {
  const std::string line = printable(text);
  shown_at_ = output_.now_s();
  if (output_.terminal) {
    // One column stays free: some terminals wrap when the last one is written. Blanks instead of an
    // escape sequence: a terminal need not know any.
    const std::string_view shown = cut(line, output_.columns() - 1);
    const std::size_t width = characters(shown);
    const std::size_t rest = on_screen_ > width ? on_screen_ - width : 0;
    output_.write("\r" + std::string(shown) + std::string(rest, ' ') + std::string(rest, '\b'));
    on_screen_ = width;
  } else {
    output_.write(line + "\n");
  }
}

void Progress::clear() {
  if (on_screen_ > 0) output_.write("\r" + std::string(on_screen_, ' ') + "\r");
  on_screen_ = 0;
}

}  // namespace ingot
