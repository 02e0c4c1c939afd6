#include "tests/support/pty_program.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/sanitizer.hpp"

namespace ingot::test {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& string : strings)
    out.push_back(const_cast<char*>(string.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

PtyProgram::PtyProgram(const std::vector<std::string>& arguments, const PtyOptions& options)
    : screen_(options.columns, options.rows) {
  const char* path = std::getenv("INGOT_TEST_PROGRAM");
  std::vector<std::string> command{path != nullptr ? path : "build/ingot"};
  if (!options.program.empty()) command[0] = options.program;
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(options.environment);
  winsize window{};
  window.ws_col = static_cast<unsigned short>(options.columns);
  window.ws_row = static_cast<unsigned short>(options.rows);
  child_ = ::forkpty(&master_, nullptr, nullptr, &window);
  if (child_ < 0) throw std::runtime_error("forkpty");
  if (child_ == 0) {
    if (options.as_nobody && ::geteuid() == 0) {
      constexpr unsigned kNobody = 65534;
      if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
        ::_exit(126);
      }
    }
    // What started the tests in the background has it ignored.
    ::signal(SIGQUIT, SIG_DFL);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::fcntl(master_, F_SETFD, FD_CLOEXEC);
  ::fcntl(master_, F_SETFL, O_NONBLOCK);
}

PtyProgram::~PtyProgram() {
  hang_up();
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
}

bool PtyProgram::take(int timeout_ms) {
  pollfd ready{master_, POLLIN, 0};
  if (master_ < 0 || ::poll(&ready, 1, timeout_ms) <= 0) return false;
  char buffer[1 << 14];
  const ssize_t got = ::read(master_, buffer, sizeof buffer);
  if (got <= 0) return false;
  const std::string_view bytes(buffer, static_cast<std::size_t>(got));
  out_ += bytes;
  arrivals_.push_back({std::chrono::duration<double>(Clock::now() - start_).count(), out_.size()});
  screen_.feed(bytes);
  return true;
}

void PtyProgram::send(std::string_view keys) {
  while (!keys.empty()) {
    const ssize_t wrote = ::write(master_, keys.data(), keys.size());
    if (wrote > 0) {
      keys.remove_prefix(static_cast<std::size_t>(wrote));
      continue;
    }
    pollfd room{master_, POLLOUT, 0};
    if (!take(20) && ::poll(&room, 1, 0) > 0 && (room.revents & (POLLHUP | POLLERR)) != 0) return;
  }
}

bool PtyProgram::wait_for(std::string_view text, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds * kPatience);
  while (true) {
    const std::size_t at = out_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (Clock::now() > end) return false;
    pollfd ready{master_, POLLIN, 0};
    const bool gone = ::poll(&ready, 1, 50) > 0 && (ready.revents & POLLIN) == 0;
    if (!take(0) && gone) return false;
  }
}

bool PtyProgram::wait_for_more(std::size_t bytes, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds * kPatience);
  const std::size_t wanted = out_.size() + bytes;
  while (out_.size() < wanted && Clock::now() < end)
    (void)take(20);
  return out_.size() >= wanted;
}

void PtyProgram::settle(std::chrono::milliseconds quiet) {
  while (take(static_cast<int>(static_cast<double>(quiet.count()) * kPatience))) {
  }
  seen_ = out_.size();
}

void PtyProgram::resize(int columns, int rows) {
  winsize window{};
  window.ws_col = static_cast<unsigned short>(columns);
  window.ws_row = static_cast<unsigned short>(rows);
  screen_.resize(columns, rows);
  ::ioctl(master_, TIOCSWINSZ, &window);
}

void PtyProgram::signal(int number) {
  ::kill(child_, number);
}

void PtyProgram::hang_up() {
  if (master_ >= 0) ::close(master_);
  master_ = -1;
}

int PtyProgram::wait(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds * kPatience);
  while (child_ > 0 && Clock::now() < end) {
    int status = 0;
    if (::waitpid(child_, &status, WNOHANG) == child_) {
      child_ = -1;
      while (take(0)) {
      }
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    if (!take(10)) ::usleep(2000);
  }
  return status_;
}

bool PtyProgram::echoes() const {
  termios modes{};
  return ::tcgetattr(master_, &modes) == 0 && (modes.c_lflag & ECHO) != 0;
}

}  // namespace ingot::test
