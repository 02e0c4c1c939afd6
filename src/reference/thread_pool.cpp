#include "src/reference/thread_pool.hpp"

#include <algorithm>

namespace ingot::reference {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { worker(stop); });
  }
}

ThreadPool::~ThreadPool() {
  for (std::jthread& thread : workers_)
    thread.request_stop();
}

void ThreadPool::run(std::int64_t count, std::int64_t grain, Call call, const void* context) {
  {
    const std::lock_guard lock(mutex_);
    call_ = call;
    context_ = context;
    count_ = count;
    // A few ranges a thread even out threads that lose their CPU for a while.
    chunk_ = std::max(grain, (count + 4 * threads() - 1) / (4 * threads()));
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    error_ = nullptr;
    ++loop_;
  }
  wake_.notify_all();
  work();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work() {
  try {
    for (;;) {
      const std::int64_t begin = next_.fetch_add(chunk_);
      if (begin >= count_) return;
      call_(context_, begin, std::min(begin + chunk_, count_));
    }
  } catch (...) {
    next_ = count_;  // no more ranges: the loop has failed
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::worker(const std::stop_token& stop) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [&] { return loop_ != seen; })) {
    seen = loop_;
    lock.unlock();
    work();
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace ingot::reference
