#pragma once

#include <termios.h>

#include <functional>
#include <string_view>

namespace ingot {

/// A terminal's modes. The object owns them from the first change on and gives back what was there
/// when it ends. One thread; one object a terminal.
class Terminal {
 public:
  struct Size {
    int columns = 80;
    int rows = 24;
  };
  using Write = std::function<void(std::string_view)>;

  /// @param fd     the terminal; stays the caller's
  /// @param write  puts bytes on the screen
  Terminal(int fd, Write write);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  /// Every key comes as its bytes, Ctrl-C too, and nothing is echoed; pastes are bracketed.
  void for_editing();
  /// Keys wait unechoed for who reads next, and Ctrl-C is a signal. Pastes stay bracketed.
  void for_answering();
  /// As it was before us: for another program.
  void restore();

  Size size() const;

 private:
  void set(const termios& modes);

  int fd_;
  Write write_;
  termios before_{};
  bool known_ = false;    ///< before_ holds what was there
  bool changed_ = false;  ///< now it differs
};

}  // namespace ingot
