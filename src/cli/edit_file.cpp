#include "src/cli/edit_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include "runtime/base/atomic_publish.hpp"
#include "runtime/base/file_descriptor.hpp"
#include "runtime/base/why_not.hpp"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

/// Nothing becomes readable when a child stops, so it is looked at so often: nobody notices it.
constexpr int kLook_ms = 20;
/// Leaves a program that has been asked to end time to put its own files away; we ourselves are
/// waited for, too.
constexpr std::chrono::milliseconds kGrace{500};

/// A file of our own that nobody else can read; it goes with the object.
class ScratchFile {
 public:
  ScratchFile() {
    std::error_code error;
    auto folder = std::filesystem::temp_directory_path(error);
    if (error) folder = "/tmp";
    path_ = (folder / "ingot-message-XXXXXX.txt").string();
    fd_ = FileDescriptor(::mkostemps(path_.data(), 4, O_CLOEXEC));
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

/// The terminal, as long as we are the job in front of it.
class Foreground {
 public:
  Foreground() : tty_(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)) { look(); }
  bool is_ours() const { return is_ours_; }
  int tty() const { return tty_.get(); }
  void give(pid_t group) const {
    if (!is_ours_) return;
    // Whoever is behind the terminal is stopped for asking, unless it will not hear of it.
    sigset_t ask, before;
    sigemptyset(&ask);
    sigaddset(&ask, SIGTTOU);
    ::pthread_sigmask(SIG_BLOCK, &ask, &before);
    (void)::tcsetpgrp(tty_.get(), group);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  void take() const { give(::getpgrp()); }
  /// Once a shell may have put another job there, or us behind it.
  void look() { is_ours_ = tty_.is_open() && ::tcgetpgrp(tty_.get()) == ::getpgrp(); }

 private:
  FileDescriptor tty_;
  bool is_ours_ = false;
};

/// A shell that runs a command line with an argument behind it, in front of the terminal. -1 with
/// errno.
pid_t start_shell(const std::string& command, const std::string& argument,
                  const Foreground& foreground) {
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t files;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_init(&files);
  // An editor wants the signals as they were before us, and Ctrl-C is its own affair.
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGPIPE, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ, SIGWINCH})
    sigaddset(&defaults, signal);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  if (foreground.is_ours()) {
    ::posix_spawn_file_actions_addtcsetpgrp_np(&files, foreground.tty());
  }
  const std::string line = command + " \"$1\"";
  const char* const arguments[] = {"sh", "-c", line.c_str(), "sh", argument.c_str(), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/bin/sh", &files, &attributes,
                                  const_cast<char* const*>(arguments), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error == 0) return child;
  errno = error;
  return -1;
}

/// The wait status of a shell's command line, or -1 with errno.
int run_shell(const std::string& command, const std::string& argument, int wake_fd,
              const std::function<int()>& ended_by) {
  Foreground foreground;
  const pid_t child = start_shell(command, argument, foreground);
  if (child < 0) {
    foreground.take();
    return -1;
  }
  std::optional<Clock::time_point> kill_at;
  while (true) {
    int status = 0;
    const pid_t changed = ::waitpid(child, &status, WUNTRACED | WNOHANG);
    if (changed < 0 && errno != EINTR) status = -1;
    if (status == -1 || (changed == child && !WIFSTOPPED(status))) {
      // What it began and did not wait for has no terminal any more.
      if (kill_at) (void)::kill(-child, SIGKILL);
      foreground.take();
      return status;
    }
    if (changed == child) {
      foreground.take();
      ::raise(SIGTSTP);  // the shell above us stops and continues us, and we the editor
      foreground.look();
      foreground.give(child);
      (void)::kill(-child, SIGCONT);
    }
    pollfd wake{kill_at ? -1 : wake_fd, POLLIN, 0};
    (void)::poll(&wake, 1, kLook_ms);
    if (wake.revents != 0) {
      if (const int signal = ended_by(); signal != 0) {
        (void)::kill(-child, signal);
        (void)::kill(-child, SIGCONT);
        kill_at = Clock::now() + kGrace;
      }
    } else if (kill_at && Clock::now() >= *kill_at) {
      (void)::kill(-child, SIGKILL);
    }
  }
}

}  // namespace

Result<std::string> edit_in_program(const std::string& program, const std::string& text,
                                    int wake_fd, const std::function<int()>& ended_by) {
  if (program.empty()) {
    return fail(ErrorCode::not_found,
                "editing a message: no editor is named; set EDITOR, or VISUAL");
  }
  const ScratchFile file;
  if (!file.is_open() || !file.write(text)) {
    return fail(ErrorCode::io, fmt::format("editing a message: writing {}: {}", file.path(),
                                           why_not_written(errno)));
  }
  const int status = run_shell(program, file.path(), wake_fd, ended_by);
  if (status < 0) {
    return fail(
        ErrorCode::io,
        fmt::format("editing a message: running {}: {}; set EDITOR to a program that there is",
                    program, std::strerror(errno)));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(
        ErrorCode::io,
        fmt::format("editing a message: {} failed with status {}; the message is as before",
                    program, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
  }
  // By name: most editors replace the file.
  auto edited = read_whole_file(file.path());
  if (edited && edited->ends_with('\n') && !text.ends_with('\n')) edited->pop_back();
  return edited;
}

}  // namespace ingot
