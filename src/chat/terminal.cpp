#include "src/chat/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ingot {
namespace {

constexpr std::string_view kBracketedPasteOn = "\x1b[?2004h";
constexpr std::string_view kBracketedPasteOff = "\x1b[?2004l";

}  // namespace

Terminal::Terminal(int fd, Write write) : fd_(fd), write_(std::move(write)) {
  known_ = ::tcgetattr(fd_, &before_) == 0;
}

Terminal::~Terminal() {
  try {
    restore();
  } catch (...) {
    // Whoever looked at the terminal has gone; its modes were set first.
  }
}

void Terminal::set(const termios& modes) {
  if (!known_) return;
  // What is typed already stays: it is the next input.
  while (::tcsetattr(fd_, TCSADRAIN, &modes) != 0 && errno == EINTR) {
  }
}

void Terminal::for_editing() {
  termios modes = before_;
  modes.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  set(modes);
  if (!std::exchange(changed_, true)) write_(kBracketedPasteOn);
}

void Terminal::for_answering() {
  termios modes = before_;
  modes.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN);
  // Ctrl-C must not swallow what is on its way to the screen.
  modes.c_lflag |= ISIG | NOFLSH;
  modes.c_cc[VSUSP] = _POSIX_VDISABLE;
  modes.c_cc[VQUIT] = _POSIX_VDISABLE;
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  set(modes);
  if (!std::exchange(changed_, true)) write_(kBracketedPasteOn);
}

void Terminal::restore() {
  if (!std::exchange(changed_, false)) return;
  set(before_);
  write_(kBracketedPasteOff);
}

Terminal::Size Terminal::size() const {
  winsize window{};
  if (::ioctl(fd_, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {};
  return {window.ws_col, window.ws_row};
}

}  // namespace ingot
