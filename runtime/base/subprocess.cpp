#include "runtime/base/subprocess.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

extern char** environ;

namespace ingot {
namespace {

constexpr std::uint64_t kMostFrameBytes = std::uint64_t{1} << 30;
constexpr off_t kTailBytes = 2000;

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

FrameStatus read_exactly(int channel, char* to, std::size_t bytes, const Deadline& deadline) {
  while (bytes > 0) {
    int wait_ms = -1;
    if (deadline) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          *deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return FrameStatus::timed_out;
      wait_ms = static_cast<int>(std::min<std::int64_t>(left.count() + 1, 1 << 30));
    }
    pollfd poll_fd{.fd = channel, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poll_fd, 1, wait_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return FrameStatus::timed_out;
    const ssize_t got = ::read(channel, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return FrameStatus::closed;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return FrameStatus::ok;
}

/// A process group of the child's own.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes_, 0);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }

  posix_spawnattr_t* get() { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

/// The actions that give a child its channel, its output and an empty input.
class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }

  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

}  // namespace

Result<Subprocess> Subprocess::spawn(const std::vector<std::string>& command) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(ErrorCode::io,
                fmt::format("starting {}: socketpair: {}", command.front(), std::strerror(errno)));
  }
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  FileDescriptor output(::memfd_create("ingot-child-output", MFD_CLOEXEC));
  if (!output.is_open()) {
    return fail(ErrorCode::io, fmt::format("starting {}: memfd_create: {}", command.front(),
                                           std::strerror(errno)));
  }

  SpawnActions actions;
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(actions.get(), output.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(actions.get(), output.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(actions.get(), theirs.get(), kChildChannel);
  std::vector<char*> arguments;
  for (const std::string& word : command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  SpawnAttributes attributes;
  const int error = ::posix_spawn(&pid, command.front().c_str(), actions.get(), attributes.get(),
                                  arguments.data(), environ);
  if (error != 0) {
    return fail(ErrorCode::io,
                fmt::format("starting {}: {}", command.front(), std::strerror(error)));
  }
  return Subprocess(pid, std::move(ours), std::move(output));
}

Subprocess::Subprocess(Subprocess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      channel_(std::move(other.channel_)),
      output_(std::move(other.output_)) {}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(channel_, other.channel_);
  std::swap(output_, other.output_);
  return *this;
}

Subprocess::~Subprocess() {
  if (pid_ < 0) return;
  kill();
  (void)wait();
}

void Subprocess::kill() {
  if (pid_ > 0) (void)::kill(pid_, SIGKILL);
}

Subprocess::End Subprocess::wait() {
  channel_.close();
  End end;
  if (pid_ < 0) return end;
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = ::waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  pid_ = -1;
  if (reaped < 0) return end;
  if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

std::string Subprocess::End::describe() const {
  if (signal != 0) return fmt::format("signal {} ({})", signal, ::strsignal(signal));
  return fmt::format("exit status {}", exit_status);
}

bool Subprocess::End::was_killed() const {
  switch (signal) {
    case SIGKILL:
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
      return true;
    default:
      return false;
  }
}

std::string Subprocess::output_tail() const {
  const off_t size = ::lseek(output_.get(), 0, SEEK_END);
  if (size <= 0) return {};
  const off_t begin = std::max<off_t>(0, size - kTailBytes);
  std::string text(static_cast<std::size_t>(size - begin), '\0');
  const ssize_t got = ::pread(output_.get(), text.data(), text.size(), begin);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

bool write_frame(int channel, const std::string& bytes) {
  const std::uint64_t length = bytes.size();
  std::string framed(sizeof length, '\0');
  std::memcpy(framed.data(), &length, sizeof length);
  framed += bytes;
  std::size_t sent = 0;
  while (sent < framed.size()) {
    const ssize_t put = ::send(channel, framed.data() + sent, framed.size() - sent, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    sent += static_cast<std::size_t>(put);
  }
  return true;
}

FrameStatus read_frame(int channel, std::string& bytes,
                       std::optional<std::chrono::milliseconds> timeout) {
  Deadline deadline;
  if (timeout) deadline = std::chrono::steady_clock::now() + *timeout;
  std::uint64_t length = 0;
  const FrameStatus status =
      read_exactly(channel, reinterpret_cast<char*>(&length), sizeof length, deadline);
  if (status != FrameStatus::ok) return status;
  if (length > kMostFrameBytes) return FrameStatus::closed;
  bytes.resize(length);
  return read_exactly(channel, bytes.data(), bytes.size(), deadline);
}

}  // namespace ingot
