#include "src/chat/input_history.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "runtime/base/file_descriptor.hpp"
#include "runtime/base/why_not.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

/// Of an entry whose every byte is escaped.
constexpr std::size_t kMostLineBytes = 2 * InputHistory::kMostEntryBytes;

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

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
                                         file.string(), attempt, why_not_written(errno)));
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

/// Of a file that is far beyond its bound the newest bytes are enough.
bool read_tail(int fd, std::size_t size, std::string& to) {
  constexpr std::size_t most = 2 * InputHistory::kMostFileBytes;
  if (size > most && ::lseek(fd, static_cast<off_t>(size - most), SEEK_SET) < 0) return false;
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(fd, buffer, sizeof buffer)) > 0)
    to.append(buffer, static_cast<std::size_t>(got));
  // Half a line at the cut.
  if (size > most) to.erase(0, std::min(to.find('\n'), to.size() - 1) + 1);
  return got == 0;
}

/// The entries that a file's text holds; returns how many of its lines are none.
std::size_t take_entries(std::string_view text, std::deque<std::string>& entries) {
  std::size_t damaged = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    auto entry = end - at <= kMostLineBytes ? from_line(text.substr(at, end - at)) : std::nullopt;
    if (entry) {
      entries.push_back(std::move(*entry));
    } else {
      ++damaged;
    }
    at = end + 1;
  }
  return damaged;
}

/// Three quarters of what may be there.
std::string newest_lines(const std::deque<std::string>& entries) {
  constexpr std::size_t kMostKept = InputHistory::kMostEntries / 4 * 3;
  constexpr std::size_t kMostKeptBytes = InputHistory::kMostFileBytes / 4 * 3;
  std::size_t first = entries.size();
  std::size_t bytes = 0;
  while (first > 0 && entries.size() - first < kMostKept) {
    bytes += to_line(entries[first - 1]).size() + 1;
    if (bytes > kMostKeptBytes) break;
    --first;
  }
  std::string lines;
  for (; first < entries.size(); ++first)
    lines += to_line(entries[first]) + '\n';
  return lines;
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
  if (!read_tail(opened.get(), size, text)) return file_error(file, "reading it");
  if (!read_only) file_ = file;
  damaged_lines_ = take_entries(text, entries_);
  const bool too_many = entries_.size() > kMostEntries;
  while (entries_.size() > kMostEntries)
    entries_.pop_front();
  const bool sound = size <= kMostFileBytes && !too_many && damaged_lines_ == 0;
  const bool seen_by_others = (info.st_mode & kOthers) != 0;
  if (read_only || (sound && !seen_by_others)) return {};
  auto mended = append({});
  if (!mended) file_.clear();
  return mended;
}

/// With no line it only sees to the file's mode and bounds.
Result<void> InputHistory::append(const std::string& line) {
  std::error_code error;
  const auto folder = file_.parent_path();
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  const FileDescriptor out(
      ::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR));
  struct stat info {};
  if (!out.is_open() || ::flock(out.get(), LOCK_EX) != 0 || ::fstat(out.get(), &info) != 0) {
    return file_error(file_, "adding to it");
  }
  // What others may read is not added to.
  if ((info.st_mode & kOthers) != 0 && ::fchmod(out.get(), S_IRUSR | S_IWUSR) != 0) {
    return file_error(file_, "hiding it from others");
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  std::string text;
  if (!read_tail(out.get(), size, text)) return file_error(file_, "reading it");
  std::deque<std::string> there;
  const std::size_t damaged = take_entries(text, there);
  if (damaged == 0 && size + line.size() <= kMostFileBytes &&
      there.size() + (line.empty() ? 0 : 1) <= kMostEntries) {
    if (!write_all(out.get(), line)) return file_error(file_, "adding to it");
    return {};
  }
  // Written anew in place, under the lock: a part stays, so that this happens seldom.
  const std::string kept = newest_lines(there) + line;
  if (::ftruncate(out.get(), 0) != 0 || !write_all(out.get(), kept)) {
    return file_error(file_, "shortening it");
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
