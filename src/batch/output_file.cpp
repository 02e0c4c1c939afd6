#include "src/batch/output_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "runtime/base/file_descriptor.hpp"
#include "runtime/base/why_not.hpp"
#include "src/batch/line_scan.hpp"

namespace ingot {
namespace {

namespace fs = std::filesystem;

/// What is there already, and what helps. Only what can be gone on with is offered --resume.
std::string there_already(OutputFile::Existing existing) {
  return fmt::format("it exists; give --force to replace it, {}or name another output",
                     existing == OutputFile::Existing::refuse ? "--resume to go on with it, " : "");
}
std::string left_over(OutputFile::Existing existing) {
  return fmt::format("it exists, perhaps from an interrupted run; {}",
                     existing == OutputFile::Existing::refuse
                         ? "give --resume to go on with it, or --force to begin anew"
                         : "give --force to begin anew, or name another output");
}
bool refuses(OutputFile::Existing existing) {
  return existing == OutputFile::Existing::refuse || existing == OutputFile::Existing::refuse_alone;
}

constexpr std::string_view kBeingWritten =
    "another run is writing it; wait for it, or name another output";

/// What a power cut may cost. An fsync holds up the engine for some milliseconds.
constexpr std::int64_t kSyncBytes = std::int64_t{64} << 20;
constexpr std::chrono::seconds kSyncAge{5};

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

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
/// or where that is asked for; never one that another run is writing.
Result<int> open_partial(const fs::path& partial, const fs::path& input,
                         OutputFile::Existing existing) {
  const int fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return refused(partial, why_not_written(errno));
  const auto give_up = [&](std::string_view why) {
    ::close(fd);
    return refused(partial, why);
  };
  // A file system without locks (ENOLCK) is none to refuse.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return give_up(kBeingWritten);
  }
  struct stat opened {
  }, named{}, in{};
  if (::fstat(fd, &opened) != 0 || ::stat(partial.c_str(), &named) != 0 ||
      !same_file(opened, named)) {
    return give_up("another run has just finished it; try again");
  }
  if (!S_ISREG(opened.st_mode))
    return give_up("it exists and is no regular file; move it away, or name another output");
  if (::stat(input.c_str(), &in) == 0 && same_file(opened, in)) {
    return give_up("it is the same file as the input; name another output");
  }
  if (existing == OutputFile::Existing::resume) return fd;
  if (opened.st_size > 0 && refuses(existing)) return give_up(left_over(existing));
  if (::ftruncate(fd, 0) != 0) return give_up(why_not_written(errno));
  return fd;
}

void sync_folder(const fs::path& file) {
  const fs::path folder = folder_of(file);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);  // some file systems cannot: the rename itself has succeeded
  ::close(fd);
}

fs::path partial_of(fs::path output) {
  output += ".partial";
  return output;
}

/// Where OUT.partial is written anew.
fs::path made_anew(fs::path partial) {
  partial += ".new";
  return partial;
}

/// Whether another run holds it open.
bool is_being_written(const fs::path& partial) {
  const FileDescriptor file(::open(partial.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return file.is_open() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

fs::path OutputFile::left(const fs::path& output) {
  const fs::path target = follow_links(output);
  const fs::path partial = partial_of(target);
  std::error_code error;
  return fs::exists(partial, error) ? partial : target;
}

bool OutputFile::is_unchanged(const struct stat& looked_at) const {
  struct stat now {};
  if (::fstat(fd_, &now) != 0) return false;
  return same_file(now, looked_at) && now.st_size == looked_at.st_size &&
         now.st_mtim.tv_sec == looked_at.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == looked_at.st_mtim.tv_nsec;
}

Unexpected OutputFile::cannot_make(int error) const {
  return refused(output_, fmt::format("cannot make {} in {}: {}", partial_.filename().string(),
                                      folder_of(output_).string(), why_not_written(error)));
}

// Everything that can be said without changing anything; nothing is open yet.
Result<OutputFile> OutputFile::plan(const fs::path& output, const fs::path& input,
                                    Existing existing) {
  OutputFile file;
  file.may_replace_ = existing == Existing::replace;
  file.may_resume_ = existing == Existing::resume;
  if (output.empty())
    return refused("the output", "it has no name; name a file, or - for standard output");
  if (output == "-") {
    if (file.may_resume_)
      return refused("standard output", "only a file can be gone on with; leave out --resume");
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
      if (file.may_resume_)
        return refused(output, "only a regular file can be gone on with; leave out --resume");
      file.output_ = file.partial_ = output;
      file.direct_ = file.owns_fd_ = true;
      return file;
    }
    if (refuses(existing)) return refused(output, there_already(existing));
  }
  file.output_ = follow_links(output);
  file.partial_ = partial_of(file.output_);
  file.owns_fd_ = true;
  struct stat old {};
  if (::stat(file.partial_.c_str(), &old) == 0) {
    if (is_input(old)) {
      return refused(file.partial_, "it is the same file as the input; name another output");
    }
    if (S_ISDIR(old.st_mode)) {
      return refused(file.partial_, "this is a folder; move it away, or name another output");
    }
    if (is_being_written(file.partial_)) return refused(file.partial_, kBeingWritten);
    if (old.st_size > 0 && refuses(existing)) return refused(file.partial_, left_over(existing));
    if (file.may_resume_ && ::stat(file.output_.c_str(), &out) == 0) {
      return refused(file.output_,
                     fmt::format("both it and {} exist; move one of them away to go on with the "
                                 "other",
                                 file.partial_.filename().string()));
    }
  } else if (errno != ENOENT) {
    return file.cannot_make(errno);
  }
  if (file.may_resume_) {
    const fs::path left = OutputFile::left(output);
    if (::access(left.c_str(), W_OK) != 0 && errno != ENOENT) {
      return refused(left, why_not_written(errno));
    }
  }
  if (::access(folder_of(file.output_).c_str(), W_OK | X_OK) != 0) return file.cannot_make(errno);
  return file;
}

Result<void> OutputFile::check(const fs::path& output, const fs::path& input, Existing existing) {
  const auto file = plan(output, input, existing);
  if (!file) return Unexpected(file.error());
  if (file->direct_ && file->owns_fd_ && ::access(output.c_str(), W_OK) != 0) {
    return refused(output, why_not_written(errno));
  }
  return {};
}

Result<OutputFile> OutputFile::create(const fs::path& output, const fs::path& input,
                                      Existing existing) {
  auto file = plan(output, input, existing);
  if (!file) return file;
  if (file->direct_) {
    file->fd_ = file->owns_fd_ ? ::open(output.c_str(), O_WRONLY | O_CLOEXEC) : STDOUT_FILENO;
    if (file->fd_ < 0) return refused(output, why_not_written(errno));
    return file;
  }
  if (file->may_resume_ && ::access(file->output_.c_str(), F_OK) == 0) {
    if (rename_new(file->output_, file->partial_) != 0) {
      return refused(file->output_,
                     fmt::format("going on with it as {}: {}", file->partial_.filename().string(),
                                 why_not_written(errno)));
    }
    file->took_output_ = true;
  }
  auto fd = open_partial(file->partial_, input, existing);
  if (!fd) {
    if (file->took_output_) (void)rename_new(file->partial_, file->output_);
    return Unexpected(fd.error());
  }
  file->fd_ = *fd;
  (void)::unlink(
      made_anew(file->partial_).c_str());  // of a run that was killed in the middle of it
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
  std::swap(may_resume_, other.may_resume_);
  std::swap(took_output_, other.took_output_);
  std::swap(reader_gone_, other.reader_gone_);
  std::swap(full_, other.full_);
  std::swap(remembers_, other.remembers_);
  std::swap(written_, other.written_);
  std::swap(unsynced_, other.unsynced_);
  std::swap(noted_, other.noted_);
  std::swap(taken_, other.taken_);
  std::swap(synced_at_, other.synced_at_);
  std::swap(places_, other.places_);
  return *this;
}

OutputFile::~OutputFile() {
  // By what is in it, not by what this run wrote: an earlier run's lines may have been refused.
  struct stat status {};
  if (empty() && fd_ >= 0 && ::fstat(fd_, &status) == 0 && status.st_size == 0) discard();
  close();
}

void OutputFile::close() {
  if (owns_fd_ && fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<void> OutputFile::recover(const Keep& keep) {
  const auto failed = [&](std::string_view what) {
    return fail(ErrorCode::io,
                fmt::format("reading {}: {}: {}", partial_.string(), what, why_not_read(errno)));
  };
  std::vector<Place> kept;
  std::int64_t number = 0;
  const auto end =
      scan_lines(fd_, partial_, [&](std::string_view line, std::int64_t offset) -> Result<void> {
        const auto stays = keep(line, ++number);
        if (!stays) return Unexpected(stays.error());
        const auto size = static_cast<std::int64_t>(line.size()) + 1;
        if (*stays > 0) kept.push_back({*stays, offset, size});
        return {};
      });
  if (!end) {
    // Nothing was changed: not its name either.
    if (took_output_) (void)rename_new(partial_, output_);
    return Unexpected(end.error());
  }
  std::int64_t whole = 0;
  for (const Place& place : kept)
    whole += place.bytes;
  if (whole == *end) {
    // Nothing but the torn end goes.
    if (::ftruncate(fd_, *end) != 0) return failed("its end");
    written_ = *end;
  } else if (auto rewritten = rewrite(kept); !rewritten) {
    return rewritten;
  }
  if (::lseek(fd_, written_, SEEK_SET) < 0) return failed("its end");
  noted_ = 0;
  for (Place& place : kept) {
    place.offset = noted_;
    noted_ += place.bytes;
  }
  if (remembers_) places_ = std::move(kept);
  return {};
}

// Makes OUT.partial of some of its lines, in this order; the old one stays until the new one is on
// the disk.
Result<void> OutputFile::rewrite(const std::vector<Place>& places) {
  const fs::path made = made_anew(partial_);
  const int fd = ::open(made.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  const auto failed = [&](std::string_view what) {
    const int error = errno;
    if (fd >= 0) {
      ::close(fd);
      ::unlink(made.c_str());
    }
    full_ = error == ENOSPC || error == EDQUOT;
    return fail(ErrorCode::io, fmt::format("{} {}: {}; the lines are in {}", what, made.string(),
                                           why_not_written(error), partial_.string()));
  };
  if (fd < 0) return failed("making");
  (void)::flock(fd, LOCK_EX | LOCK_NB);  // as the one whose place it takes
  std::string out, buffer;
  std::int64_t total = 0;
  for (const Place& place : places) {
    for (std::int64_t done = 0; done < place.bytes;) {
      const auto most = std::min<std::int64_t>(place.bytes - done, kCopyBytes);
      const auto bytes = read_at(fd_, place.offset + done, static_cast<std::size_t>(most), buffer);
      if (!bytes || bytes->empty()) return failed("copying lines to");
      out += *bytes;
      done += static_cast<std::int64_t>(bytes->size());
      if (out.size() < kCopyBytes) continue;
      if (!write_whole(fd, out)) return failed("writing");
      out.clear();
    }
    total += place.bytes;
  }
  if (!write_whole(fd, out) || ::fsync(fd) != 0) return failed("writing");
  if (::rename(made.c_str(), partial_.c_str()) != 0) return failed("naming");
  ::close(fd_);
  fd_ = fd;
  written_ = total;
  unsynced_ = 0;
  return {};
}

void OutputFile::note_line(std::int64_t line, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  if (remembers_) places_.push_back({line, noted_, size});
  noted_ += size;
}

Result<void> OutputFile::sync_if_due() {
  if (direct_ || unsynced_ == 0) return {};
  if (unsynced_ < kSyncBytes && Clock::now() - synced_at_ < kSyncAge) return {};
  if (::fdatasync(fd_) != 0) {
    return fail(ErrorCode::io, fmt::format("bringing {} to the disk: {}", partial_.string(),
                                           why_not_written(errno)));
  }
  unsynced_ = 0;
  synced_at_ = Clock::now();
  return {};
}

Result<void> OutputFile::append(std::string_view lines) {
  if (unsynced_ == 0) synced_at_ = Clock::now();
  full_ = false;
  taken_ = 0;
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
      taken_ = last == std::string_view::npos ? 0 : last + 1;
      written_ += static_cast<std::int64_t>(taken_);
      unsynced_ += static_cast<std::int64_t>(taken_);
      if (::ftruncate(fd_, written_) == 0) (void)::lseek(fd_, written_, SEEK_SET);
    }
    reader_gone_ = error == EPIPE;
    full_ = !direct_ && (error == ENOSPC || error == EDQUOT);
    return fail(
        ErrorCode::io,
        fmt::format("writing {}: {}{}", partial_.string(), why_not_written(error),
                    direct_ || written_ == 0 ? "" : "; the lines before that are kept there"));
  }
  written_ += static_cast<std::int64_t>(lines.size());
  unsynced_ += static_cast<std::int64_t>(lines.size());
  return sync_if_due();
}

Result<void> OutputFile::commit() {
  if (direct_) {
    close();
    return {};
  }
  const auto failed = [&](std::string_view what) {
    return fail(ErrorCode::io,
                fmt::format("{} {}: {}; the results are in {}", what, output_.string(),
                            why_not_written(errno), partial_.string()));
  };
  full_ = false;
  std::stable_sort(places_.begin(), places_.end(),
                   [](const Place& a, const Place& b) { return a.line < b.line; });
  // By where they lie in the file: an earlier attempt may have come as far as here.
  if (!std::is_sorted(places_.begin(), places_.end(),
                      [](const Place& a, const Place& b) { return a.offset < b.offset; })) {
    if (auto sorted = rewrite(places_); !sorted) return sorted;
    std::vector<Place>().swap(places_);
  }
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
