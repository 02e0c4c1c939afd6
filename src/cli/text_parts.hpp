#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/file_descriptor.hpp"
#include "src/text/text_check.hpp"
#include "src/text/tokenizer.hpp"

namespace ingot {

/// A text in parts whose ids, one after the other, are those of the whole: however long a file is,
/// little of it is in memory. What is no regular file is read when it is opened, up to 32 MiB.
class TextParts {
 public:
  /// A part longer than this is refused: one word, or a text of a tokenizer of which no places to
  /// cut are known.
  static constexpr std::size_t kMaxPartBytes = std::size_t{16} << 20;

  TextParts(const Tokenizer& tokenizer, AddedTokens added, std::string text);
  /// @param file  `-` is standard input. Errors: not_found, io, invalid_argument.
  [[nodiscard]] static Result<TextParts> open(const Tokenizer& tokenizer, AddedTokens added,
                                              const std::filesystem::path& file);

  /// The next part, until the next call; nullopt at the end.
  /// Errors: io; invalid_argument for a part that is too long, which names its place.
  [[nodiscard]] Result<std::optional<std::string_view>> next();
  /// Begins anew. Error: io.
  [[nodiscard]] Result<void> rewind();
  /// Whether all of it can be had, from the first part on, and what in it is no text.
  /// Errors: those of next().
  [[nodiscard]] Result<TextFaults> check();

  /// For messages.
  const std::string& name() const { return name_; }

 private:
  /// Reads until so many bytes are there that were not handed out, or to the end.
  Result<void> fill(std::size_t bytes);

  const Tokenizer* tokenizer_;
  AddedTokens added_;
  std::string name_;
  FileDescriptor file_;  ///< not open: all of the text is in `buffer_`
  off_t start_ = 0;      ///< of the text in the file
  bool ended_ = true;    ///< nothing is left to read
  std::string buffer_;
  std::size_t begin_ = 0;       ///< of the part that was handed out last, in `buffer_`
  std::size_t handed_out_ = 0;  ///< its bytes
  std::int64_t place_ = 0;      ///< of it, in the text
};

}  // namespace ingot
