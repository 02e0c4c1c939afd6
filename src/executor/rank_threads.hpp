#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/function_ref.hpp"

namespace ingot::executor {

/// One thread per tensor parallel rank, for the whole life of an engine: drivers tie their objects
/// to the context that is current on a thread. Rank 0 runs on the thread that calls run(), so that
/// one rank costs nothing.
class RankThreads {
 public:
  /// @param stop_others  called once, by the first rank that throws: whatever the other ranks wait
  ///                     for on their cards must end soon afterwards. Must not throw.
  RankThreads(int size, std::function<void()> stop_others);
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads();

  int size() const { return size_; }

  /// Runs body(rank) for every rank and returns when all have ended; allocates nothing. The first
  /// error is thrown here. With more than one rank their states may differ then: run() refuses from
  /// there on.
  void run(FunctionRef<void(int rank)> body);
  /// The same for taking down: runs after a failure too, and errors are dropped.
  void run_last(FunctionRef<void(int rank)> body) noexcept;
  /// Within body: returns when every rank is here. Where a rank has thrown it throws too, and that
  /// does not count as an error of its own.
  void meet();
  /// A rank of several has thrown.
  bool failed() const;

 private:
  struct Stopped {};

  void run_all(const FunctionRef<void(int rank)>& body);
  void run_rank(int rank);
  void work(int rank);

  const int size_;
  const std::function<void()> stop_others_;

  mutable std::mutex mutex_;
  std::condition_variable changed_, all_here_;
  const FunctionRef<void(int rank)>* body_ = nullptr;
  std::uint64_t round_ = 0;  // of run(); counts up
  int running_ = 0;          // ranks but 0 that have not ended this round
  int here_ = 0;
  std::uint64_t meeting_ = 0;
  bool failed_ = false, ends_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace ingot::executor
