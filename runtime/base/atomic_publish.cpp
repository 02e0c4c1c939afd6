#include "runtime/base/atomic_publish.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "runtime/base/file_descriptor.hpp"
#include "runtime/base/why_not.hpp"

namespace ingot {
namespace {

constexpr std::string_view kPrefix = ".publish-";
constexpr mode_t kEveryoneMode = 0644;  // less the umask
constexpr mode_t kOwnerMode = 0600;
constexpr int kFolderRounds = 8;

/// Unlike any other process's on any machine that shares the folder.
std::string temporary_name() {
  std::uint64_t random[2] = {};
  if (::getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    random[0] = static_cast<std::uint64_t>(::getpid());
    random[1] = static_cast<std::uint64_t>(std::time(nullptr));
  }
  return fmt::format("{}{:016x}{:016x}", kPrefix, random[0], random[1]);
}

/// not_found where the folder was not there, io otherwise.
Unexpected step_error(const std::filesystem::path& target, std::string_view step, int error) {
  return fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::io,
              fmt::format("writing {}: {}: {}", target.string(), step, why_not_written(error)));
}

bool missing_folder(const Error& error) {
  return error.code == ErrorCode::not_found;
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

/// Through signals.
int sync_file(int fd) {
  int done = 0;
  while ((done = ::fsync(fd)) != 0 && errno == EINTR) {
  }
  return done;
}

Result<void> publish_once(const std::filesystem::path& target, std::string_view bytes,
                          FileAccess access) {
  const auto temporary = target.parent_path() / temporary_name();
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                             access == FileAccess::owner ? kOwnerMode : kEveryoneMode));
  if (!file.is_open()) return step_error(target, "create", errno);
  const char* step = nullptr;
  int error = 0;
  if (!write_all(file.get(), bytes)) {
    step = "write";
    error = errno;
  } else if (sync_file(file.get()) != 0) {
    step = "sync";
    error = errno;
  } else if (::rename(temporary.c_str(), target.c_str()) != 0) {
    step = "rename";
    error = errno;
  }
  if (step == nullptr) return {};
  (void)::unlink(temporary.c_str());
  return step_error(target, step, error);
}

}  // namespace

Result<void> publish_file(const std::filesystem::path& target, std::string_view bytes,
                          FileAccess access) {
  auto published = publish_once(target, bytes, access);
  // Whether the folder was missing is asked of the failed attempt, not of the disk: by now another
  // process may have made it. It may also be removed again between two steps, hence the rounds.
  for (int round = 0; round < kFolderRounds && !published && missing_folder(published.error());
       ++round) {
    std::error_code error;
    std::filesystem::create_directories(target.parent_path(), error);
    if (error && error != std::errc::no_such_file_or_directory) {
      return fail(ErrorCode::io, fmt::format("creating {}: {}", target.parent_path().string(),
                                             why_not_written(error.value())));
    }
    published = publish_once(target, bytes, access);
  }
  if (!published) published.error().code = ErrorCode::io;
  return published;
}

bool is_temporary_name(std::string_view file_name) {
  return file_name.starts_with(kPrefix);
}

int sweep_temporaries(const std::filesystem::path& directory, std::chrono::seconds age) {
  int removed = 0;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!is_temporary_name(entry->path().filename().string())) continue;
    struct stat status {};
    if (::stat(entry->path().c_str(), &status) != 0) continue;
    if (std::time(nullptr) - status.st_mtime < age.count()) continue;
    if (::unlink(entry->path().c_str()) == 0) ++removed;
  }
  return removed;
}

Result<std::string> read_whole_file(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) {
    const int error = errno;
    // ESTALE: on a network file system another machine replaced the file a moment ago.
    const bool absent = error == ENOENT || error == ENOTDIR || error == ESTALE;
    return fail(absent ? ErrorCode::not_found : ErrorCode::io,
                fmt::format("reading {}: {}", path.string(), why_not_read(error)));
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fail(ErrorCode::io, fmt::format("reading {}: {}", path.string(), why_not_read(errno)));
    }
    if (got == 0) break;  // shorter than it was a moment ago
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace ingot
