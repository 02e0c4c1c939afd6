#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// One thing that is wrong with outside bytes: which file, which place, why, and the remedy.
struct Problem {
  ErrorCode code;
  std::string text;
};

/// Everything that is wrong, collected so that a user mends it in one go. Not thread-safe.
class Problems {
 public:
  void add(ErrorCode code, std::string text) { list_.push_back({code, std::move(text)}); }
  void add(const Error& error) { add(error.code, error.message); }
  /// The last line of a list that was cut: so many problems that have no lines of their own.
  void add_rest(ErrorCode code, std::size_t count, std::string text) {
    add(code, std::move(text));
    without_line_ += count - 1;
  }

  bool empty() const { return list_.empty(); }
  /// Those without a line of their own among them.
  std::size_t size() const { return list_.size() + without_line_; }
  std::span<const Problem> list() const { return list_; }

  /// All of them as one error: "ATTEMPT: PROBLEM" for one, else "ATTEMPT: N problems" and a line
  /// each (the first 1000; a hostile file must not make a hostile message). The code is the
  /// first problem's. Call only if there are any.
  Error to_error(std::string_view attempt) const;

 private:
  std::vector<Problem> list_;
  std::size_t without_line_ = 0;
};

/// "1 byte", "2 bytes"
std::string counted(std::uint64_t count, std::string_view noun);

/// Outside text made fit for a one-line message: in quotes, control characters and bytes that are
/// not ASCII escaped, cut after 120 bytes.
std::string in_quotes(std::string_view text);

}  // namespace ingot
