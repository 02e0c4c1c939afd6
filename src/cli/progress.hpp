#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

namespace ingot {

/// What long work says about itself, on standard error: one line that is written over on a
/// terminal, a plain line every ten seconds elsewhere. A stream that is gone is no error. One
/// thread at a time.
class Progress {
 public:
  struct Output {
    std::function<void(std::string_view)> write;  ///< bytes as they are
    std::function<double()> now_s;                ///< a steady clock
    bool terminal = false;
    std::function<int()> columns;  ///< width of the terminal
  };

  /// Standard error and the steady clock.
  static Output standard_error();

  explicit Progress(Output output);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  /// Whether a line would be shown now; spares making it.
  bool due() const;
  void show(std::string_view text);
  /// Takes the status line away, so that other lines can be written.
  void clear();

 private:
  Output output_;
  double shown_at_ = 0;
  std::size_t on_screen_ = 0;  ///< columns of the status line
};

}  // namespace ingot
