#include "src/batch/output_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLeftOver =
    "it exists, perhaps from an interrupted run; move it away, or give --force";

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

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Opens OUT.partial for this run alone. One that an earlier run left is taken over if it is empty,
/// or by force; never one that another run is writing.
Result<int> open_partial(const fs::path& partial, const fs::path& input, bool force) {
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return refused(partial, std::strerror(errno));
  const auto give_up = [&](std::string_view why) {
    ::close(fd);
    return refused(partial, why);
  };
  // A file system without locks (ENOLCK) is none to refuse.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return give_up("another run is writing it");
  }
  struct stat opened {
  }, named{}, in{};
  if (::fstat(fd, &opened) != 0 || ::stat(partial.c_str(), &named) != 0 ||
      !same_file(opened, named)) {
    return give_up("another run has just finished it; try again");
  }
  if (!S_ISREG(opened.st_mode)) return give_up("it exists and is no regular file");
  if (::stat(input.c_str(), &in) == 0 && same_file(opened, in)) {
    return give_up("it is the same file as the input; name another output");
  }
  if (opened.st_size > 0 && !force) {
    return give_up(kLeftOver);
  }
  if (::ftruncate(fd, 0) != 0) return give_up(std::strerror(errno));
  return fd;
}

void sync_folder(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);  // some file systems cannot: the rename itself has succeeded
  ::close(fd);
}

}  // namespace

Unexpected OutputFile::cannot_make(int error) const {
  const fs::path folder = output_.has_parent_path() ? output_.parent_path() : fs::path(".");
  return refused(output_, fmt::format("cannot make {} in {}: {}", partial_.filename().string(),
                                      folder.string(), std::strerror(error)));
}

// Everything that can be said without changing anything; nothing is open yet.
Result<OutputFile> OutputFile::plan(const fs::path& output, const fs::path& input, bool force) {
  OutputFile file;
  file.may_replace_ = force;
  if (output.empty())
    return refused("the output", "it has no name; name a file, or - for standard output");
  if (output == "-") {
    file.output_ = file.partial_ = "standard output";
    file.direct_ = true;
    return file;
  }
  struct stat in {};
  const bool have_input =
      input == "-" ? ::fstat(STDIN_FILENO, &in) == 0 : ::stat(input.c_str(), &in) == 0;
  const auto is_input = [&](const struct stat& other) {
    return have_input && same_file(in, other);
  };
  struct stat out {};
  if (::stat(output.c_str(), &out) == 0) {
    if (S_ISREG(out.st_mode) && is_input(out)) {
      return refused(output, "it is the same file as the input; name another output");
    }
    if (S_ISDIR(out.st_mode)) return refused(output, "this is a folder; name a file");
    if (!S_ISREG(out.st_mode)) {
      file.output_ = file.partial_ = output;
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
  file.owns_fd_ = true;
  struct stat old {};
  if (::stat(file.partial_.c_str(), &old) == 0) {
    if (is_input(old)) {
      return refused(file.partial_, "it is the same file as the input; name another output");
    }
    if (old.st_size > 0 && !force) return refused(file.partial_, kLeftOver);
  } else if (errno != ENOENT) {
    return file.cannot_make(errno);
  }
  const fs::path folder =
      file.output_.has_parent_path() ? file.output_.parent_path() : fs::path(".");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return file.cannot_make(errno);
  return file;
}

Result<void> OutputFile::check(const fs::path& output, const fs::path& input, bool force) {
  const auto file = plan(output, input, force);
  if (!file) return Unexpected(file.error());
  if (file->direct_ && file->owns_fd_ && ::access(output.c_str(), W_OK) != 0) {
    return refused(output, std::strerror(errno));
  }
  return {};
}

Result<OutputFile> OutputFile::create(const fs::path& output, const fs::path& input, bool force) {
  auto file = plan(output, input, force);
  if (!file) return file;
  if (file->direct_) {
    file->fd_ = file->owns_fd_ ? ::open(output.c_str(), O_WRONLY | O_CLOEXEC) : STDOUT_FILENO;
    if (file->fd_ < 0) return refused(output, std::strerror(errno));
    return file;
  }
  auto fd = open_partial(file->partial_, input, force);
  if (!fd) return Unexpected(fd.error());
  file->fd_ = *fd;
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
  std::swap(reader_gone_, other.reader_gone_);
  std::swap(written_, other.written_);
  return *this;
}

OutputFile::~OutputFile() {
  if (empty()) discard();
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
    reader_gone_ = error == EPIPE;
    return fail(
        ErrorCode::io,
        fmt::format("writing {}: {}{}", partial_.string(), std::strerror(error),
                    direct_ || written_ == 0 ? "" : "; the lines before that are kept there"));
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
