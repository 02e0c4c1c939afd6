#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// Finds stop strings in a stream of text and holds back what may still become one. The match that
/// ends first wins, the longest of those that end together; nothing of it is ever released. The
/// joined output does not depend on how the stream was cut.
class StopMatcher {
 public:
  explicit StopMatcher(std::span<const std::string> stops);

  /// Text that can no longer be part of a stop string. After a match: what precedes the match, and
  /// nothing ever again.
  std::string push(std::string_view text);
  /// What is held back, released: the stream ended, or goes on elsewhere.
  std::string flush();

  bool matched() const { return matched_ >= 0; }
  /// Index of the stop string that ended the stream; -1 while none has.
  int matched_index() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> border;  ///< Knuth-Morris-Pratt failure function
    std::uint32_t matched = 0;          ///< bytes of `text` that the stream now ends in
  };

  std::vector<Pattern> patterns_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace ingot
