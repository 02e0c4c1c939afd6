#include "src/cli/edit_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/file_descriptor.hpp"

namespace ingot {
namespace {

/// A file of our own that nobody else can read; it goes with the object.
class ScratchFile {
 public:
  ScratchFile() {
    std::error_code error;
    auto folder = std::filesystem::temp_directory_path(error);
    if (error) folder = "/tmp";
    path_ = (folder / "ingot-message-XXXXXX.txt").string();
    fd_ = FileDescriptor(::mkstemps(path_.data(), 4));
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    if (fd_.is_open()) (void)::unlink(path_.c_str());
  }

  bool is_open() const { return fd_.is_open(); }
  const std::string& path() const { return path_; }
  bool write(const std::string& text) const {
    return ::write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }

 private:
  std::string path_;
  FileDescriptor fd_;
};

/// The wait status of a shell's command line, or -1 with errno.
int run_shell(const std::string& command, const std::string& argument) {
  // An editor wants the signals as they were before us, and Ctrl-C is its own affair.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGPIPE, SIGTERM, SIGHUP, SIGWINCH})
    sigaddset(&defaults, signal);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const std::string line = command + " \"$1\"";
  const char* const arguments[] = {"sh", "-c", line.c_str(), "sh", argument.c_str(), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/bin/sh", nullptr, &attributes,
                                  const_cast<char* const*>(arguments), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    errno = error;
    return -1;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return status;
}

}  // namespace

Result<std::string> edit_in_program(const std::string& program, const std::string& text) {
  if (program.empty()) {
    return fail(ErrorCode::not_found,
                "editing a message: no editor is named; set EDITOR, or VISUAL");
  }
  const ScratchFile file;
  if (!file.is_open() || !file.write(text)) {
    return fail(ErrorCode::io, fmt::format("editing a message: writing {}: {}", file.path(),
                                           std::strerror(errno)));
  }
  const int status = run_shell(program, file.path());
  if (status < 0) {
    return fail(ErrorCode::io,
                fmt::format("editing a message: running {}: {}", program, std::strerror(errno)));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(
        ErrorCode::io,
        fmt::format("editing a message: {} failed with status {}; the message is as before",
                    program, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
  }
  // By name: most editors replace the file.
  return read_whole_file(file.path());
}

}  // namespace ingot
