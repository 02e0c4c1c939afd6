#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/token.hpp"

namespace ingot {

/// How text that spells an added token (`<think>`, `<｜User｜>` …) is encoded.
enum class AddedTokens {
  as_text,    ///< ordinary pieces: what a user types is never a control token
  recognise,  ///< cut out of the text first, leftmost-longest: for text that we wrote ourselves
};

/// Byte-level BPE as a Hugging Face `tokenizer.json` describes it (the DeepSeek-V4 subset of that
/// format; anything else is refused by name). Immutable after load; any thread may call it.
/// Source: model specification section 6.1.
class Tokenizer {
 public:
  /// @param file tokenizer.json or tokenizer.json.zst, or a directory that holds one of them.
  /// Errors: not_found, io, corrupt, unsupported; the message names file, place and remedy.
  [[nodiscard]] static Result<Tokenizer> load(const std::filesystem::path& file);
  [[nodiscard]] static Result<Tokenizer> parse(std::string_view json, std::string_view origin);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Appends the ids of `text` to `out`. Bytes that are not UTF-8 are encoded as U+FFFD, one for
  /// each maximal invalid part, as the Unicode standard recommends.
  /// Throws EngineError(unsupported) for a word of more than 16 MiB, and where a split pattern of
  /// the file gives up on the text; those of DeepSeek-V4 cannot.
  void encode(std::string_view text, AddedTokens added, std::vector<TokenId>& out) const;
  std::vector<TokenId> encode(std::string_view text,
                              AddedTokens added = AddedTokens::as_text) const;

  /// The last place where a text may be cut, whatever follows it: the ids of both parts, one after
  /// the other, are those of the whole. 0: nothing is known of one; so it is with split patterns
  /// other than DeepSeek-V4's.
  std::size_t split_point(std::string_view text, AddedTokens added) const;

  /// The bytes that a token stands for; for an added token its text. Empty for an undefined id.
  std::string_view bytes(TokenId id) const;
  /// All tokens' bytes joined. Not necessarily UTF-8: StreamDecoder mends that.
  std::string decode(std::span<const TokenId> ids) const;

  /// The id of an added token by its exact text.
  std::optional<TokenId> added_token(std::string_view text) const;
  bool is_added(TokenId id) const;
  /// One past the highest defined id.
  int size() const;
  /// The most bytes that one token stands for.
  std::size_t longest_token_bytes() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// Turns a stream of byte pieces into a stream of valid UTF-8: holds back a character that is not
/// complete, and writes U+FFFD for bytes that can never become one. The joined output does not
/// depend on where the stream was cut.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  /// What was still held back, as U+FFFD.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace ingot
