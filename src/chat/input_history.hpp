#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace ingot {

/// What a user has entered, newest last, and the file that remembers it: one entry a line, LF
/// written as \n and a backslash as \\, for its owner's eyes only, whatever its mode was before.
/// Any number of programs may add to one file, and together they keep it within the bounds. One
/// thread at a time.
class InputHistory {
 public:
  static constexpr std::size_t kMostEntries = 2000;
  static constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;
  /// Longer entries are remembered until the end of the program only.
  static constexpr std::size_t kMostEntryBytes = std::size_t{16} << 10;

  /// Without a file.
  InputHistory() = default;

  /// Takes the entries of `file`, which need not exist, and adds to it from now on unless
  /// `read_only`. Lines that are not entries are left out and counted. A file beyond the bounds,
  /// now or when an entry would take it there, loses its oldest entries. Error: io; entries are
  /// then kept in memory alone.
  [[nodiscard]] Result<void> open(const std::filesystem::path& file, bool read_only);
  std::size_t damaged_lines() const { return damaged_lines_; }

  /// Remembers an entry; one that repeats the newest is not added again.
  /// Error: io, the first time only; the entry is kept in memory.
  [[nodiscard]] Result<void> add(std::string_view entry);

  const std::deque<std::string>& entries() const { return entries_; }

 private:
  Result<void> append(const std::string& line);

  std::deque<std::string> entries_;
  std::filesystem::path file_;  ///< empty: nothing is written
  std::size_t damaged_lines_ = 0;
};

}  // namespace ingot
