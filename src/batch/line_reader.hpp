#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/error.hpp"

namespace ingot {

/// One line of input without its end. `number` counts all lines from 1, blank ones too.
struct InputLine {
  std::int64_t number = 0;
  std::string text;
  bool too_long = false;  ///< longer than the reader's limit: `text` is empty, the rest was skipped
};

/// The longest line that is looked at; longer ones are skipped unparsed.
inline constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;

/// A line that is skipped ends the reading here: it is taken for one without end.
inline constexpr std::size_t kMaxSkippedBytes = std::size_t{1} << 30;

/// Reads lines of up to kMaxSkippedBytes from a file descriptor, holding one line at most. Ends of
/// lines are LF or CRLF, the last may have none, a byte-order mark at the very start is dropped.
/// Does not own the descriptor. One thread at a time.
class LineReader {
 public:
  /// @param wake_fd  a wait for more input ends, interrupted, once this is readable; -1: no such
  explicit LineReader(int fd, std::string origin, std::size_t max_bytes = kMaxLineBytes,
                      int wake_fd = -1);

  /// Goes on with another descriptor where the first one ends, as if they were one.
  void then(int fd) { then_fd_ = fd; }

  /// The next line; nullopt at the end of input, or when the wait for more was interrupted.
  /// Errors: io; invalid_argument for a text that begins as UTF-16 does, and for a line of more
  /// than kMaxSkippedBytes.
  [[nodiscard]] Result<std::optional<InputLine>> next();

  /// next() will not wait: a line or the end lies ready.
  bool ready();
  bool at_end() const { return ended_ && buffer_.size() == begin_; }
  bool interrupted() const { return interrupted_; }

 private:
  enum class Filled { more, end, interrupted, failed };
  Filled fill();

  int fd_;
  std::string origin_;
  std::size_t max_bytes_;
  int wake_fd_;
  int then_fd_ = -1;
  std::string buffer_;
  std::size_t begin_ = 0;    ///< of the line that is being read, in buffer_
  std::size_t scanned_ = 0;  ///< no LF before here
  bool skipping_ = false;    ///< the line is too long: bytes are dropped up to its end
  std::size_t skipped_ = 0;  ///< bytes of it that were dropped
  bool ended_ = false;
  bool interrupted_ = false;
  std::int64_t number_ = 0;
};

/// A line without anything but blanks.
bool is_blank(std::string_view line);

}  // namespace ingot
