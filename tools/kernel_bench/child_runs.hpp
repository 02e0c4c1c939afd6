#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace ingot::bench {

/// Works through numbered items in child processes: one that faults or hangs costs the item that it
/// was at, not the rest. The parent opens no driver.
class ChildRuns {
 public:
  /// @param patience  how long a child may show no sign of life
  /// @param most_lost  children after which to give up
  ChildRuns(std::chrono::seconds patience, int most_lost);
  ~ChildRuns();
  ChildRuns(const ChildRuns&) = delete;
  ChildRuns& operator=(const ChildRuns&) = delete;

  /// In a child: the item that is now in work.
  void begin(std::size_t item) const;

  /// Calls `work(first)` in a child, which is to call begin(i) for each item i from `first` on that
  /// it does, and to return when it is done or time is up. When it does not return, calls
  /// `lost(item, why)` here and goes on behind that item.
  /// Throws EngineError(io) when no child can be started.
  void run(std::size_t count, const std::function<void(std::size_t)>& work,
           const std::function<void(std::size_t, const std::string&)>& lost);

 private:
  struct Shared {
    std::atomic<std::size_t> at;     ///< item in work
    std::atomic<bool> finished;      ///< the child stopped of its own accord
    std::atomic<std::int64_t> sign;  ///< grows with every step
  };
  std::string watch(int child) const;

  std::chrono::seconds patience_;
  int lost_left_;
  Shared* shared_;
};

}  // namespace ingot::bench
