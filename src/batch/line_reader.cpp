#include "src/batch/line_reader.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/why_not.hpp"
#include "src/text/text_check.hpp"

namespace ingot {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 18;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\f\v") == std::string_view::npos;
}

LineReader::LineReader(int fd, std::string origin, std::size_t max_bytes, int wake_fd)
    : fd_(fd), origin_(std::move(origin)), max_bytes_(max_bytes), wake_fd_(wake_fd) {}

LineReader::Filled LineReader::fill() {
  pollfd waiting[2] = {{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  if (wake_fd_ >= 0) {
    if (::poll(waiting, 2, -1) < 0 && errno == EINTR) return Filled::interrupted;
    if (waiting[1].revents != 0) return Filled::interrupted;
  }
  // Lines handed out are dropped here, once for a whole piece of input.
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  // What one long line needed is given back.
  if (buffer_.size() + kPieceBytes < buffer_.capacity() / 4) buffer_.shrink_to_fit();
  const std::size_t old = buffer_.size();
  buffer_.resize(old + kPieceBytes);
  const ssize_t got = ::read(fd_, buffer_.data() + old, kPieceBytes);
  buffer_.resize(old + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got > 0) return Filled::more;
  if (got == 0 && then_fd_ >= 0) {
    fd_ = std::exchange(then_fd_, -1);
    return Filled::more;
  }
  if (got == 0) return Filled::end;
  return errno == EINTR ? Filled::interrupted : Filled::failed;
}

bool LineReader::ready() {
  if (ended_ || buffer_.find('\n', scanned_) != std::string::npos) return true;
  pollfd waiting{fd_, POLLIN, 0};
  return ::poll(&waiting, 1, 0) != 0;
}

Result<std::optional<InputLine>> LineReader::next() {
  interrupted_ = false;
  while (true) {
    std::size_t end = buffer_.find('\n', scanned_);
    if (end == std::string::npos) {
      scanned_ = buffer_.size();
      // Two bytes more than the limit: a CR and the LF that is still to come.
      if (buffer_.size() - begin_ > max_bytes_ + 2) skipping_ = true;
      if (skipping_) {
        skipped_ += buffer_.size() - begin_;
        begin_ = buffer_.size();
        if (skipped_ > kMaxSkippedBytes) {
          return fail(ErrorCode::invalid_argument,
                      fmt::format("reading {}: line {} has more than {} MiB and no end in sight; "
                                  "end it, or name another file",
                                  origin_, number_ + 1, kMaxSkippedBytes >> 20));
        }
      }
      if (!ended_) {
        switch (fill()) {
          case Filled::more:
            continue;
          case Filled::end:
            ended_ = true;
            continue;
          case Filled::interrupted:
            interrupted_ = true;
            return std::optional<InputLine>();
          case Filled::failed:
            return fail(ErrorCode::io, fmt::format("reading {}: {}", origin_, why_not_read(errno)));
        }
      }
      if (buffer_.size() == begin_ && !skipping_) return std::optional<InputLine>();
      end = buffer_.size();
    }
    InputLine line;
    line.number = ++number_;
    std::string_view text = std::string_view(buffer_).substr(begin_, end - begin_);
    if (line.number == 1 && text.starts_with(kByteOrderMark)) {
      text.remove_prefix(kByteOrderMark.size());
    }
    if (line.number == 1 && !skipping_) {
      const auto checked = check_not_utf16(std::string_view(buffer_).substr(begin_), origin_);
      if (!checked) return Unexpected(checked.error());
    }
    if (text.ends_with('\r')) text.remove_suffix(1);
    line.too_long = skipping_ || text.size() > max_bytes_;
    const std::size_t next = std::min(end + 1, buffer_.size());
    if (!line.too_long && text.size() > kPieceBytes) {
      // A long line takes the buffer with it instead of being copied.
      const auto first = static_cast<std::size_t>(text.data() - buffer_.data());
      const std::size_t size = text.size();
      std::string rest = buffer_.substr(next);
      line.text = std::exchange(buffer_, std::move(rest));
      line.text.resize(first + size);
      line.text.erase(0, first);
      begin_ = 0;
    } else {
      if (!line.too_long) line.text = text;
      begin_ = next;
    }
    skipping_ = false;
    skipped_ = 0;
    scanned_ = begin_;
    return std::optional(std::move(line));
  }
}

}  // namespace ingot
