#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ingot::reference {

/// A few threads that share the loops of one rank. The owner's thread works too, so a pool of one
/// starts no thread. One thread at a time calls parallel_for, never from inside a body.
/// Not its job: anything that results could depend on. Bodies write disjoint outputs.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(begin, end) for ranges that together cover [0, count), and returns when all are
  /// done. Ranges have at least `grain` items (the last may be shorter): choose it so that a range
  /// is worth the microseconds of waking a thread. Rethrows the first exception of a body.
  template <class Body>
  void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
    if (count <= grain || workers_.empty()) {
      if (count > 0) body(std::int64_t{0}, count);
      return;
    }
    run(
        count, grain,
        [](const void* context, std::int64_t begin, std::int64_t end) {
          (*static_cast<const Body*>(context))(begin, end);
        },
        &body);
  }

 private:
  using Call = void (*)(const void* context, std::int64_t begin, std::int64_t end);

  void run(std::int64_t count, std::int64_t grain, Call call, const void* context);
  void work();
  void worker(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable done_;
  std::uint64_t loop_ = 0;  ///< number of the current loop; a worker joins each loop once
  int busy_ = 0;            ///< workers that have not finished the current loop
  std::exception_ptr error_;

  // The current loop. Written under mutex_ before the workers wake.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t chunk_ = 0;
  std::atomic<std::int64_t> next_{0};

  std::vector<std::jthread> workers_;  // last: they stop before the rest goes
};

}  // namespace ingot::reference
