#include "src/reference/tp_group.hpp"

#include <exception>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/base/log.hpp"

namespace ingot::reference {

void TpGroup::run(const std::function<void(int tp_rank)>& body) {
  if (failed_) {
    throw EngineError(ErrorCode::invalid_argument,
                      "running a step: a tensor parallel rank failed in an earlier step, and the "
                      "ranks' states differ; open the model again");
  }
  std::exception_ptr error;
  const auto run_rank = [&](int tp_rank) {
    try {
      body(tp_rank);
    } catch (const Stopped&) {  // the rank that failed has the error
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error) error = std::current_exception();
      failed_ = true;
      all_here_.notify_all();
    }
  };
  if (size_ == 1) {
    run_rank(0);
  } else {
    std::vector<std::jthread> ranks;
    for (int tp_rank = 0; tp_rank < size_; ++tp_rank) {
      ranks.emplace_back([&, tp_rank] {
        log::set_thread_rank(tp_rank);
        run_rank(tp_rank);
      });
    }
  }
  if (error) std::rethrow_exception(error);
}

void TpGroup::all_reduce_sum(int tp_rank, std::span<float> values) {
  if (size_ == 1) return;
  parts_[static_cast<std::size_t>(tp_rank)] = values;
  meet();
  // This rank alone reads and writes its slice of everyone's values.
  const auto rank = static_cast<std::size_t>(tp_rank);
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t begin = values.size() * rank / ranks;
  const std::size_t end = values.size() * (rank + 1) / ranks;
  for (std::size_t i = begin; i < end; ++i) {
    float sum = parts_[0][i];
    for (std::size_t r = 1; r < ranks; ++r)
      sum += parts_[r][i];
    for (const std::span<float>& part : parts_)
      part[i] = sum;
  }
  meet();
}

void TpGroup::meet() {
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

}  // namespace ingot::reference
