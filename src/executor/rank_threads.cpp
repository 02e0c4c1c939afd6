#include "src/executor/rank_threads.hpp"

#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace ingot::executor {

RankThreads::RankThreads(int size, std::function<void()> stop_others)
    : size_(size), stop_others_(std::move(stop_others)) {
  for (int rank = 1; rank < size; ++rank)
    threads_.emplace_back([this, rank] { work(rank); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_)
    thread.join();
}

void RankThreads::work(int rank) {
  log::set_thread_rank(rank);
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return round_ != seen || ends_; });
      if (round_ == seen) return;
      seen = round_;
    }
    run_rank(rank);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) changed_.notify_all();
  }
}

void RankThreads::run_rank(int rank) {
  try {
    (*body_)(rank);
  } catch (const Stopped&) {  // the rank that failed has the error
  } catch (...) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = !error_;
      if (first) error_ = std::current_exception();
      failed_ = size_ > 1;
      all_here_.notify_all();
    }
    if (first && size_ > 1 && stop_others_) stop_others_();
  }
}

void RankThreads::run_all(const FunctionRef<void(int rank)>& body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    error_ = nullptr;
    here_ = 0;
    running_ = size_ - 1;
    if (size_ > 1) {
      ++round_;
      changed_.notify_all();
    }
  }
  run_rank(0);
  if (size_ == 1) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
}

void RankThreads::run(FunctionRef<void(int rank)> body) {
  if (failed()) {
    throw EngineError(ErrorCode::invalid_argument,
                      "using the device engine: a tensor parallel rank failed earlier, and the "
                      "ranks' states may differ; open the model again");
  }
  run_all(body);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void RankThreads::run_last(FunctionRef<void(int rank)> body) noexcept {
  run_all(body);
  error_ = nullptr;
}

void RankThreads::meet() {
  if (size_ == 1) return;
  std::unique_lock lock(mutex_);
  if (failed_) throw Stopped();
  const std::uint64_t meeting = meeting_;
  if (++here_ == size_) {
    here_ = 0;
    ++meeting_;
    all_here_.notify_all();
    return;
  }
  all_here_.wait(lock, [&] { return meeting_ != meeting || failed_; });
  if (meeting_ == meeting) throw Stopped();
}

bool RankThreads::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

}  // namespace ingot::executor
