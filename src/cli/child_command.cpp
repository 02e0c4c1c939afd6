#include "src/cli/child_command.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "runtime/base/file_descriptor.hpp"

namespace ingot {
namespace {

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    read = FileDescriptor(ends[0]);
    write = FileDescriptor(ends[1]);
    return true;
  }
};

/// A child in a process group of its own; killed and reaped with the object.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    (void)::kill(-pid_, SIGKILL);
    (void)wait();
  }

  /// An error number, or 0.
  int start(const std::string& command, int in, int out) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGPIPE, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGXFSZ, SIGWINCH})
      sigaddset(&defaults, signal);
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const char* const arguments[] = {"sh", "-c", command.c_str(), nullptr};
    const int error = ::posix_spawn(&pid_, "/bin/sh", &files, &attributes,
                                    const_cast<char* const*>(arguments), environ);
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) pid_ = -1;
    return error;
  }
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace

Result<std::string> run_filter(const std::string& command, std::string input, int wake_fd,
                               const std::function<bool()>& go_on) {
  const auto failed = [&](std::string_view why) {
    return fail(ErrorCode::io, fmt::format("running {}: {}", command, why));
  };
  Pipe in, out;
  if (!in.open() || !out.open()) return failed(std::strerror(errno));
  Child child;
  if (const int error = child.start(command, in.read.get(), out.write.get()); error != 0) {
    return failed(std::strerror(error));
  }
  in.read.close();
  out.write.close();
  ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);

  std::string output;
  std::string_view left = input;
  while (true) {
    pollfd fds[3] = {{out.read.get(), POLLIN, 0},
                     {wake_fd, POLLIN, 0},
                     {left.empty() ? -1 : in.write.get(), POLLOUT, 0}};
    if (left.empty()) in.write.close();
    if (::poll(fds, 3, -1) < 0 && errno != EINTR) return failed(std::strerror(errno));
    if (fds[1].revents != 0 && !go_on()) return failed("stopped");
    if (fds[2].revents != 0) {
      const ssize_t put = ::write(in.write.get(), left.data(), left.size());
      if (put > 0) left.remove_prefix(static_cast<std::size_t>(put));
      // It need not read its input.
      if (put < 0 && errno != EAGAIN && errno != EINTR) left = {};
    }
    if (fds[0].revents == 0) continue;
    char buffer[1 << 14];
    const ssize_t got = ::read(out.read.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(std::strerror(errno));
    if (got == 0) break;
    output.append(buffer, static_cast<std::size_t>(got));
    if (output.size() > kMostFilterBytes) {
      return failed(
          fmt::format("it writes more than {} KiB; let it write less", kMostFilterBytes >> 10));
    }
  }
  const int status = child.wait();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  return failed(WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                                  : fmt::format("ended by signal {}", WTERMSIG(status)));
}

}  // namespace ingot
