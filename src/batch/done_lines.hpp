#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "src/batch/id_set.hpp"

namespace ingot {

/// The lines of an input that an earlier run has dealt with, and what is to be known of those among
/// which they stand: up to the last of them no line has to be understood again to tell which
/// custom_ids are repeated. Some 50 bytes a line.
class DoneLines {
 public:
  /// Takes the next line of the input, in ascending order.
  void add_done(std::int64_t line, bool failed) { done_.push_back(2 * line + (failed ? 1 : 0)); }
  /// It is not dealt with, and an earlier one has its custom_id.
  void add_repeated(std::int64_t line) { repeated_.push_back(line); }
  /// False where an earlier line has that custom_id.
  bool add_id(std::string_view custom_id) { return ids_.insert(custom_id); }
  void set_last(std::int64_t line) { last_ = line; }

  bool has(std::int64_t line) const;
  bool failed(std::int64_t line) const;
  bool repeated(std::int64_t line) const;
  /// Lines up to here have been looked at.
  std::int64_t last() const { return last_; }
  /// The custom_ids of these lines; they are given up.
  IdSet take_ids() { return std::move(ids_); }

 private:
  std::vector<std::int64_t> done_;  ///< twice the line, and 1 where it failed; ascending
  std::vector<std::int64_t> repeated_;
  std::int64_t last_ = 0;
  IdSet ids_;
};

}  // namespace ingot
