#include "tests/support/run_program.hpp"

#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace ingot::test {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    read = ends[0];
    write = ends[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read >= 0) ::close(read);
    read = -1;
  }
  void close_write() {
    if (write >= 0) ::close(write);
    write = -1;
  }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& string : strings)
    out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

/// Appends what is there; false at the end.
bool drain(int fd, std::string& to) {
  char buffer[1 << 16];
  const ssize_t got = ::read(fd, buffer, sizeof(buffer));
  if (got > 0) to.append(buffer, static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

}  // namespace

std::string ingot_program() {
  const char* path = std::getenv("INGOT_TEST_PROGRAM");
  return path != nullptr ? path : "build/ingot";
}

ProgramResult run_ingot(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  std::vector<std::string> command{options.program.empty() ? ingot_program() : options.program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(options.environment);
  Pipe in, out, err;
  // The child's peak begins with what it has of ours.
  ::malloc_trim(0);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    // What started the tests in the background, or under nohup, has these ignored.
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGHUP, SIG_DFL);
    ::signal(SIGQUIT, SIG_DFL);
    ::dup2(in.read, STDIN_FILENO);
    const int file = options.output_file.empty()
                         ? -1
                         : ::open(options.output_file.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0 && !options.output_file.empty()) ::_exit(126);
    ::dup2(file >= 0 ? file : out.write, STDOUT_FILENO);
    ::dup2(err.write, STDERR_FILENO);
    if (options.file_size_limit > 0) {
      const rlimit limit{options.file_size_limit, options.file_size_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);  // the write fails with EFBIG instead
    }
    if (options.as_nobody && ::geteuid() == 0) {
      constexpr unsigned kNobody = 65534;
      if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
        ::_exit(126);
      }
    }
    if (!options.working_directory.empty() && ::chdir(options.working_directory.c_str()) != 0) {
      ::_exit(126);
    }
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  in.close_read();
  out.close_write();
  err.close_write();
  if (options.close_output) out.close_read();
  ::fcntl(in.write, F_SETFL, O_NONBLOCK);
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);

  ProgramResult result;
  std::string_view input = options.input;
  if (input.empty() && !options.keep_input_open) in.close_write();
  bool waiting = !options.wait_for.empty() || options.wait_for_output > 0;
  while (out.read >= 0 || err.read >= 0) {
    pollfd fds[3] = {
        {input.empty() ? -1 : in.write, POLLOUT, 0}, {out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
    ::poll(fds, 3, -1);
    if (in.write >= 0 && fds[0].revents != 0) {
      const ssize_t wrote = ::write(in.write, input.data(), input.size());
      if (wrote > 0) input.remove_prefix(static_cast<std::size_t>(wrote));
      const bool done = input.empty() && !options.keep_input_open;
      if (done || (wrote < 0 && errno != EAGAIN)) in.close_write();
    }
    if (fds[1].revents != 0 && !drain(out.read, result.out)) out.close_read();
    if (fds[2].revents != 0 && !drain(err.read, result.err)) err.close_read();
    const bool seen = options.wait_for_output > 0
                          ? result.out.size() >= options.wait_for_output
                          : result.err.find(options.wait_for) != std::string::npos;
    if (waiting && seen) {
      waiting = false;
      options.then(child);
    }
  }
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.peak_bytes = static_cast<std::size_t>(usage.ru_maxrss) * 1024;
  if (result.status == 127) throw std::runtime_error("cannot run " + command[0]);
  return result;
}

}  // namespace ingot::test
