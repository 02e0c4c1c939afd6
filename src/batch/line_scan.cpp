#include "src/batch/line_scan.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/why_not.hpp"

namespace ingot {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

std::optional<std::string_view> read_at(int fd, std::int64_t offset, std::size_t most,
                                        std::string& buffer) {
  buffer.resize(most);
  ssize_t got = 0;
  do {
    got = ::pread(fd, buffer.data(), most, static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return std::nullopt;
  return std::string_view(buffer.data(), static_cast<std::size_t>(got));
}

bool write_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

Result<std::int64_t> scan_lines(int fd, const std::filesystem::path& file, const TakeLine& take) {
  struct stat status {};
  if (::fstat(fd, &status) == 0 && !S_ISREG(status.st_mode)) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("reading {}: it is no regular file; name one that ingot generate wrote",
                            file.string()));
  }
  std::string buffer, line;
  std::int64_t begin = 0;
  for (std::int64_t at = 0;;) {
    const auto bytes = read_at(fd, at, kPieceBytes, buffer);
    if (!bytes) {
      return fail(ErrorCode::io, fmt::format("reading {}: {}", file.string(), why_not_read(errno)));
    }
    if (bytes->empty()) return begin;
    at += static_cast<std::int64_t>(bytes->size());
    std::string_view rest = *bytes;
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      line.append(rest.substr(0, end));
      rest.remove_prefix(end + 1);
      if (auto taken = take(line, begin); !taken) return Unexpected(taken.error());
      begin += static_cast<std::int64_t>(line.size()) + 1;
      line.clear();
    }
    line.append(rest);
  }
}

}  // namespace ingot
