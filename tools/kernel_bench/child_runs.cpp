#include "tools/kernel_bench/child_runs.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "runtime/base/error.hpp"

namespace ingot::bench {

using std::chrono::steady_clock;

ChildRuns::ChildRuns(std::chrono::seconds patience, int most_lost)
    : patience_(patience), lost_left_(most_lost) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw EngineError(ErrorCode::io, "mapping a shared page failed");
  shared_ = new (memory) Shared{};
}
ChildRuns::~ChildRuns() {
  munmap(shared_, sizeof(Shared));
}

void ChildRuns::begin(std::size_t item) const {
  shared_->at = item;
  ++shared_->sign;
}

void ChildRuns::run(std::size_t count, const std::function<void(std::size_t)>& work,
                    const std::function<void(std::size_t, const std::string&)>& lost) {
  std::size_t first = 0;
  while (first < count) {
    shared_->at = first;
    shared_->finished = false;
    ++shared_->sign;
    const pid_t child = fork();
    if (child < 0) throw EngineError(ErrorCode::io, "fork failed");
    if (child == 0) {
      try {
        work(first);
        shared_->finished = true;
        _exit(0);
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        _exit(3);
      }
    }
    const std::string why = watch(child);
    if (shared_->finished) return;
    const std::size_t at = shared_->at;
    lost(at, why);
    first = at + 1;
    if (--lost_left_ < 0) {
      fmt::print(stderr, "too many candidates lost, stopping\n");
      return;
    }
  }
}

/// Waits for the child; how it ended.
std::string ChildRuns::watch(int child) const {
  std::int64_t sign = shared_->sign;
  auto heard = steady_clock::now();
  while (true) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? "driver error"
                               : fmt::format("killed by signal {}", WTERMSIG(status));
    if (shared_->sign != sign) {
      sign = shared_->sign;
      heard = steady_clock::now();
    }
    if (steady_clock::now() - heard > patience_) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return fmt::format("hangs: no sign of life for {} s", patience_.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace ingot::bench
