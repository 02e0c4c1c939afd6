#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ingot {

/// The split stages of a tokenizer.json: each cuts the pieces left by the previous one at the
/// matches of its pattern; matches and what lies between them are the new pieces.
/// Immutable; any thread may call it.
class PreTokenizer {
 public:
  /// Stages that are accepted (V4 has three).
  static constexpr std::size_t kMaxStages = 8;

  /// @param patterns regular expressions as Oniguruma reads them, the subset that PCRE2 reads the
  ///                 same way. Errors: unsupported (by name), corrupt (no regular expression);
  ///                 the message is to be prefixed with the file's name.
  [[nodiscard]] static Result<PreTokenizer> compile(const std::vector<std::string>& patterns);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  /// Calls `take(context, piece)` for each piece of `text` in order.
  /// Throws EngineError(unsupported) if a pattern gives up on the text: it backtracks without
  /// bound, which those of V4 cannot.
  /// @param text UTF-8.
  void split(std::string_view text, void (*take)(void* context, std::string_view piece),
             void* context) const;

  /// The last place in `text`, but for its ends, where a piece ends in any text that holds it: cut
  /// there, both parts have the pieces that they have together. 0: there is none, or nothing is
  /// known of these patterns; those of DeepSeek-V4 are known.
  /// @param after_lines  at ends of lines alone
  std::size_t split_point(std::string_view text, bool after_lines) const;

 private:
  struct Stage;
  explicit PreTokenizer(std::vector<Stage> stages);
  std::vector<Stage> stages_;
  bool known_ = false;  ///< the patterns are DeepSeek-V4's
};

}  // namespace ingot
