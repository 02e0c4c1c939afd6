#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace ingot::reference {

/// The tensor parallel ranks of one process, one thread each, and their all-reduce.
/// Sums are made in rank order, so they do not depend on who comes first.
class TpGroup {
 public:
  explicit TpGroup(int size) : size_(size), parts_(static_cast<std::size_t>(size)) {}

  int size() const { return size_; }

  /// Runs body(tp_rank) for every rank and returns when all have ended. Where a rank throws, the
  /// others stop at their next all-reduce, and its error is thrown here, once. The ranks are then
  /// in unequal states: the group must not be used again, and run() refuses.
  void run(const std::function<void(int tp_rank)>& body);
  /// A rank has thrown.
  bool failed() const { return failed_; }

  /// values ← the sum over all ranks. Called by every rank, with spans of one size.
  void all_reduce_sum(int tp_rank, std::span<float> values);

 private:
  struct Stopped {};  ///< thrown at a meeting point of a group in which a rank has failed

  void meet();

  const int size_;
  std::vector<std::span<float>> parts_;

  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0;
  std::uint64_t meeting_ = 0;
  bool failed_ = false;
};

}  // namespace ingot::reference
