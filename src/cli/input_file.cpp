#include "src/cli/input_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "runtime/base/why_not.hpp"
#include "src/batch/line_scan.hpp"
#include "src/text/text_check.hpp"

namespace ingot {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 18;

/// Devices give bytes without end, or those of a whole disk. A terminal has an end (Ctrl-D), and
/// the null device is one.
Result<void> check_no_device(int fd, const struct stat& status, std::string_view name) {
  const bool is_device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
  if (!is_device || ::isatty(fd) == 1) return {};
  struct stat null_device {};
  if (::stat("/dev/null", &null_device) == 0 && status.st_rdev == null_device.st_rdev) return {};
  return fail(ErrorCode::invalid_argument,
              fmt::format("reading {}: this is a device; name a file or a pipe", name));
}

/// A file that nobody sees and that goes with its descriptor; not open where none can be made.
FileDescriptor nameless_file(const std::filesystem::path& folder) {
  FileDescriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.is_open()) return file;
  std::string name = folder / ".ingot-input-XXXXXX";  // not every file system has such files
  file = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (file.is_open()) (void)::unlink(name.c_str());
  return file;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path, BatchFormat format) {
  if (path == "-") {
    name_ = "standard input";
    fd_ = STDIN_FILENO;
  } else {
    name_ = path.string();
    if (std::error_code error; std::filesystem::is_directory(path, error)) {
      throw EngineError(ErrorCode::invalid_argument,
                        fmt::format("reading {}: this is a folder; name a file", name_));
    }
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) {
      throw EngineError(ErrorCode::not_found,
                        fmt::format("reading {}: {}", name_, why_not_read(errno)));
    }
    owned_ = true;
  }
  struct stat status {};
  if (::fstat(fd_, &status) == 0) {
    if (auto checked = check_no_device(fd_, status, name_); !checked) {
      if (owned_) ::close(fd_);
      throw EngineError(checked.error());
    }
    if (S_ISREG(status.st_mode)) start_ = ::lseek(fd_, 0, SEEK_CUR);
  }
  if (start_ < 0) return;
  std::string buffer;
  const auto begin = read_at(fd_, start_, kTextBeginBytes, buffer);
  if (!begin) return;  // told of where it is read
  value_or_throw(check_not_utf16(*begin, name_));
  if (format == BatchFormat::text) value_or_throw(check_no_nul(*begin, "reading " + name_));
}

InputFile::~InputFile() {
  if (owned_) ::close(fd_);
}

Result<void> InputFile::keep_lines(std::int64_t lines, const std::filesystem::path& folder) {
  if (start_ >= 0) return {};
  const auto failed = [&](std::string_view what) {
    return fail(ErrorCode::io, fmt::format("{}: {}", what, why_not_written(errno)));
  };
  kept_ = nameless_file(folder);
  const std::string keeping =
      fmt::format("keeping the first lines of {} in {}", name_, folder.string());
  if (!kept_.is_open()) return failed(keeping);
  std::string piece(kPieceBytes, '\0');
  while (lines > 0) {
    const ssize_t got = ::read(fd_, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fail(ErrorCode::io, fmt::format("reading {}: {}", name_, why_not_read(errno)));
    }
    if (got == 0) break;
    const std::string_view bytes(piece.data(), static_cast<std::size_t>(got));
    if (!write_whole(kept_.get(), bytes)) return failed(keeping);
    lines -= std::count(bytes.begin(), bytes.end(), '\n');
  }
  return {};
}

LineReader InputFile::lines(std::size_t max_bytes, int wake_fd) {
  if (start_ >= 0) (void)::lseek(fd_, start_, SEEK_SET);
  if (!kept_.is_open()) return LineReader(fd_, name_, max_bytes, wake_fd);
  (void)::lseek(kept_.get(), 0, SEEK_SET);
  LineReader reader(kept_.get(), name_, max_bytes, wake_fd);
  reader.then(fd_);
  return reader;
}

}  // namespace ingot
