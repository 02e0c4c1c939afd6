#pragma once

#include <cstddef>
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

  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  std::span<const Problem> list() const { return list_; }

  /// All of them as one error: "ATTEMPT: PROBLEM" for one, else "ATTEMPT: N problems" and a line
  /// each (the first 1000; a hostile file must not make a hostile message). The code is the
  /// first problem's. Call only if there are any.
  Error to_error(std::string_view attempt) const;

 private:
  std::vector<Problem> list_;
};

/// Outside text made fit for a one-line message: in quotes, control characters and bytes that are
/// not ASCII escaped, cut after 120 bytes.
std::string in_quotes(std::string_view text);

}  // namespace ingot
