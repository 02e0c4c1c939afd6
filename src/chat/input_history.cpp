#include "src/chat/input_history.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "runtime/base/file_descriptor.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

/// Of an entry whose every byte is escaped.
constexpr std::size_t kMostLineBytes = 2 * InputHistory::kMostEntryBytes;

std::string to_line(std::string_view entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\\') {
      line += "\\\\";
    } else {
      line += c;
    }
  }
  return line;
}

/// nullopt for what to_line() never writes.
std::optional<std::string> from_line(std::string_view line) {
  if (line.empty() || !is_utf8(line) || line.find('\0') != std::string_view::npos) {
    return std::nullopt;
  }
  std::string entry;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      entry += line[i];
      continue;
    }
    if (++i == line.size() || (line[i] != 'n' && line[i] != '\\')) return std::nullopt;
    entry += line[i] == 'n' ? '\n' : '\\';
  }
  return entry;
}

Unexpected file_error(const std::filesystem::path& file, const char* attempt) {
  return fail(ErrorCode::io, fmt::format("the input history {}: {}: {}; entries are kept until the "
                                         "end of this program only",
                                         file.string(), attempt, std::strerror(errno)));
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

/// At most the newest `most` bytes.
bool read_tail(int fd, std::size_t size, std::size_t most, std::string& to) {
  if (size > most && ::lseek(fd, static_cast<off_t>(size - most), SEEK_SET) < 0) return false;
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(fd, buffer, sizeof buffer)) > 0)
    to.append(buffer, static_cast<std::size_t>(got));
  // Half a line at the cut.
  if (size > most) to.erase(0, std::min(to.find('\n'), to.size() - 1) + 1);
  return got == 0;
}

}  // namespace

Result<void> InputHistory::open(const std::filesystem::path& file, bool read_only) {
  // O_NONBLOCK: a FIFO would wait for somebody.
  FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.is_open()) {
    if (errno != ENOENT) return file_error(file, "opening it");
    if (!read_only) file_ = file;
    return {};
  }
  struct stat info {};
  if (::fstat(opened.get(), &info) != 0) return file_error(file, "reading it");
  if (!S_ISREG(info.st_mode)) {
    errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    return file_error(file, "this is no regular file");
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  std::string text;
  if (!read_tail(opened.get(), size, 2 * kMostFileBytes, text)) {
    return file_error(file, "reading it");
  }
  if (!read_only) file_ = file;
  const bool too_long = size > kMostFileBytes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    auto entry = end - at <= kMostLineBytes ? from_line(std::string_view(text).substr(at, end - at))
                                            : std::nullopt;
    if (entry) {
      entries_.push_back(std::move(*entry));
    } else {
      ++damaged_lines_;
    }
    at = end + 1;
  }
  const bool too_many = entries_.size() > kMostEntries;
  while (entries_.size() > kMostEntries)
    entries_.pop_front();
  if (read_only || (!too_long && !too_many && damaged_lines_ == 0)) return {};

  // Written anew in place, under the lock that add() takes: half the bytes stay, so that this
  // happens seldom.
  std::size_t first = entries_.size();
  std::size_t bytes = 0;
  while (first > 0 && bytes < kMostFileBytes / 2)
    bytes += to_line(entries_[--first]).size() + 1;
  std::string kept;
  for (std::size_t i = first; i < entries_.size(); ++i)
    kept += to_line(entries_[i]) + '\n';
  FileDescriptor out(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!out.is_open() || ::flock(out.get(), LOCK_EX) != 0 || ::ftruncate(out.get(), 0) != 0 ||
      !write_all(out.get(), kept)) {
    file_.clear();
    return file_error(file, "shortening it");
  }
  return {};
}

Result<void> InputHistory::append(std::string_view line) {
  std::error_code error;
  const auto folder = file_.parent_path();
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  const FileDescriptor out(
      ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!out.is_open() || ::flock(out.get(), LOCK_EX) != 0 || !write_all(out.get(), line)) {
    return file_error(file_, "adding to it");
  }
  return {};
}

Result<void> InputHistory::add(std::string_view entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return {};
  entries_.emplace_back(entry);
  if (entries_.size() > kMostEntries) entries_.pop_front();
  if (file_.empty() || entry.size() > kMostEntryBytes ||
      entry.find('\0') != std::string_view::npos) {
    return {};
  }
  auto appended = append(to_line(entry) + '\n');
  if (!appended) file_.clear();
  return appended;
}

}  // namespace ingot
