#include "src/batch/output_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace ingot {
namespace {

namespace fs = std::filesystem;

Unexpected refused(const fs::path& output, std::string_view why) {
  return fail(ErrorCode::invalid_argument, fmt::format("writing {}: {}", output.string(), why));
}

/// The file that a chain of symbolic links ends at, so that the link itself stays.
fs::path follow_links(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

/// Renames unless the new name exists.
int rename_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  // A file system without that operation: a hard link never replaces anything either.
  if (::link(from.c_str(), to.c_str()) != 0) return -1;
  return ::unlink(from.c_str());
}

void sync_folder(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);  // some file systems cannot: the rename itself has succeeded
  ::close(fd);
}

}  // namespace

Result<OutputFile> OutputFile::create(const fs::path& output, const fs::path& input, bool force) {
  OutputFile file;
  file.may_replace_ = force;
  if (output == "-") {
    file.output_ = file.partial_ = "standard output";
    file.fd_ = STDOUT_FILENO;
    file.direct_ = true;
    return file;
  }
  struct stat out {};
  const bool exists = ::stat(output.c_str(), &out) == 0;
  if (exists) {
    struct stat in {};
    const bool have_input =
        input == "-" ? ::fstat(STDIN_FILENO, &in) == 0 : ::stat(input.c_str(), &in) == 0;
    if (S_ISREG(out.st_mode) && have_input && in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
      return refused(output, "it is the same file as the input; name another output");
    }
    if (S_ISDIR(out.st_mode)) return refused(output, "this is a folder; name a file");
    if (!S_ISREG(out.st_mode)) {
      file.output_ = file.partial_ = output;
      file.fd_ = ::open(output.c_str(), O_WRONLY | O_CLOEXEC);
      if (file.fd_ < 0) return refused(output, std::strerror(errno));
      file.direct_ = file.owns_fd_ = true;
      return file;
    }
    if (!force) {
      return refused(output, "it exists; give --force to replace it, or name another output");
    }
  }
  file.output_ = follow_links(output);
  file.partial_ = file.output_;
  file.partial_ += ".partial";
  int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_EXCL;
  if (force) {
    struct stat old {
    }, in{};
    if (::stat(file.partial_.c_str(), &old) == 0 && ::stat(input.c_str(), &in) == 0 &&
        old.st_dev == in.st_dev && old.st_ino == in.st_ino) {
      return refused(file.partial_, "it is the same file as the input; name another output");
    }
    if (::unlink(file.partial_.c_str()) != 0 && errno != ENOENT) {
      return refused(file.partial_, std::strerror(errno));
    }
  }
  file.fd_ = ::open(file.partial_.c_str(), flags, 0666);
  if (file.fd_ < 0) {
    if (errno == EEXIST) {
      return refused(file.partial_,
                     "it exists, perhaps from an interrupted run; move it away, or give --force");
    }
    const int error = errno;
    const fs::path folder =
        file.output_.has_parent_path() ? file.output_.parent_path() : fs::path(".");
    return refused(output,
                   fmt::format("cannot make {} in {}: {}", file.partial_.filename().string(),
                               folder.string(), std::strerror(error)));
  }
  file.owns_fd_ = true;
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept {
  *this = std::move(other);
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(output_, other.output_);
  std::swap(partial_, other.partial_);
  std::swap(fd_, other.fd_);
  std::swap(direct_, other.direct_);
  std::swap(owns_fd_, other.owns_fd_);
  std::swap(may_replace_, other.may_replace_);
  std::swap(written_, other.written_);
  return *this;
}

OutputFile::~OutputFile() {
  close();
}

void OutputFile::close() {
  if (owns_fd_ && fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<void> OutputFile::append(std::string_view lines) {
  std::string_view rest = lines;
  while (!rest.empty()) {
    const ssize_t wrote = ::write(fd_, rest.data(), rest.size());
    if (wrote >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(wrote));
      continue;
    }
    if (errno == EINTR) continue;
    const int error = errno;
    if (!direct_) {
      // The torn line goes; those of this call that are whole stay.
      const std::string_view done = lines.substr(0, lines.size() - rest.size());
      const std::size_t last = done.rfind('\n');
      written_ += last == std::string_view::npos ? 0 : static_cast<std::int64_t>(last + 1);
      if (::ftruncate(fd_, written_) == 0) (void)::lseek(fd_, written_, SEEK_SET);
    }
    return fail(ErrorCode::io, fmt::format("writing {}: {}; the lines before that are kept there",
                                           partial_.string(), std::strerror(error)));
  }
  written_ += static_cast<std::int64_t>(lines.size());
  return {};
}

Result<void> OutputFile::commit() {
  if (direct_) {
    close();
    return {};
  }
  const auto failed = [&](std::string_view what) {
    return fail(ErrorCode::io,
                fmt::format("{} {}: {}; the results are in {}", what, output_.string(),
                            std::strerror(errno), partial_.string()));
  };
  if (::fsync(fd_) != 0) return failed("writing");
  const int renamed =
      may_replace_ ? ::rename(partial_.c_str(), output_.c_str()) : rename_new(partial_, output_);
  if (renamed != 0) return failed("naming");
  sync_folder(output_);
  close();
  return {};
}

void OutputFile::discard() {
  if (!direct_ && fd_ >= 0) ::unlink(partial_.c_str());
  close();
}

}  // namespace ingot
