#include "src/cli/text_parts.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/why_not.hpp"
#include "src/batch/line_scan.hpp"
#include "src/cli/read_text_file.hpp"

namespace ingot {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

TextParts::TextParts(const Tokenizer& tokenizer, AddedTokens added, std::string text)
    : tokenizer_(&tokenizer), added_(added), name_("the text"), buffer_(std::move(text)) {}

Result<TextParts> TextParts::open(const Tokenizer& tokenizer, AddedTokens added,
                                  const std::filesystem::path& file) {
  const bool is_standard_input = file == "-";
  const std::string name = is_standard_input ? "standard input" : file.string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(is_standard_input ? "/dev/stdin" : file, error)) {
    auto text = read_text_file(file, SIZE_MAX);
    if (!text) return Unexpected(text.error());
    TextParts parts(tokenizer, added, std::move(*text));
    parts.name_ = name;
    return parts;
  }
  TextParts parts(tokenizer, added, {});
  parts.name_ = name;
  parts.ended_ = false;
  parts.file_ = FileDescriptor(is_standard_input ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                                 : ::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!parts.file_.is_open()) {
    return fail(ErrorCode::not_found,
                fmt::format("reading {}: {}", parts.name_, why_not_read(errno)));
  }
  parts.start_ = std::max<off_t>(::lseek(parts.file_.get(), 0, SEEK_CUR), 0);
  std::string buffer;
  const auto begin = read_at(parts.file_.get(), parts.start_, kTextBeginBytes, buffer);
  if (begin) {
    if (auto checked = check_not_utf16(*begin, name); !checked) return Unexpected(checked.error());
  }
  return parts;
}

Result<void> TextParts::fill(std::size_t bytes) {
  buffer_.erase(0, std::exchange(begin_, 0));
  while (buffer_.size() < bytes && !ended_) {
    const std::size_t old = buffer_.size();
    buffer_.resize(bytes);
    const ssize_t got = ::read(file_.get(), buffer_.data() + old, bytes - old);
    buffer_.resize(old + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR) {
      return fail(ErrorCode::io, fmt::format("reading {}: {}", name_, why_not_read(errno)));
    }
    ended_ = got == 0;
  }
  return {};
}

Result<std::optional<std::string_view>> TextParts::next() {
  begin_ += handed_out_;
  place_ += static_cast<std::int64_t>(std::exchange(handed_out_, 0));
  for (std::size_t most = kPieceBytes;; most = std::min(2 * most, kMaxPartBytes)) {
    // One byte more tells whether the text goes on.
    if (buffer_.size() - begin_ <= most && !ended_) {
      if (auto filled = fill(most + 1); !filled) return Unexpected(filled.error());
    }
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    if (rest.empty()) return std::optional<std::string_view>();
    handed_out_ =
        rest.size() <= most ? rest.size() : tokenizer_->split_point(rest.substr(0, most), added_);
    if (handed_out_ > 0) return std::optional(rest.substr(0, handed_out_));
    if (most == kMaxPartBytes) break;
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("reading {}: the {} MiB from byte {} on are one word, or hold no place "
                          "where they may be cut without other ids; end a line there, or split "
                          "the text",
                          name_, kMaxPartBytes >> 20, place_));
}

Result<void> TextParts::rewind() {
  begin_ = handed_out_ = 0;
  place_ = 0;
  if (!file_.is_open()) return {};
  buffer_.clear();
  ended_ = false;
  if (::lseek(file_.get(), start_, SEEK_SET) >= 0) return {};
  return fail(ErrorCode::io, fmt::format("reading {}: {}", name_, why_not_read(errno)));
}

Result<TextFaults> TextParts::check() {
  if (auto begun = rewind(); !begun) return Unexpected(begun.error());
  TextFaults faults;
  while (true) {
    const auto part = next();
    if (!part) return Unexpected(part.error());
    if (!*part) break;
    faults.add(**part, place_);  // no part ends within a character: that would be other ids
  }
  if (auto begun = rewind(); !begun) return Unexpected(begun.error());
  return faults;
}

}  // namespace ingot
