#include "tests/support/peak_memory.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>

namespace ingot::test {
namespace {

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total_pages = 0;
  std::size_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::size_t peak_memory_of(const std::function<void()>& body) {
  int report[2] = {};
  if (::pipe(report) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    // 5 resets the peak, which a fork inherits.
    std::ofstream("/proc/self/clear_refs") << "5" << std::flush;
    const std::size_t before = resident_bytes();
    int status = 0;
    try {
      body();
    } catch (...) {
      status = 1;
    }
    std::size_t peak = 0;
    std::ifstream lines("/proc/self/status");
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("VmHWM:")) peak = std::stoul(line.substr(6)) * 1024;
    }
    const std::size_t grown = peak > before ? peak - before : 0;
    if (::write(report[1], &grown, sizeof(grown)) != sizeof(grown)) status = 1;
    ::_exit(status);
  }
  ::close(report[1]);
  std::size_t grown = 0;
  const bool reported = ::read(report[0], &grown, sizeof(grown)) == sizeof(grown);
  ::close(report[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!reported || status != 0) throw std::runtime_error("the measured child failed");
  return grown;
}

}  // namespace ingot::test
