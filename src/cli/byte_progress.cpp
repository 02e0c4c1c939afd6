#include "src/cli/byte_progress.hpp"

#include <fmt/format.h>

#include <utility>

namespace ingot {

ByteProgress::ByteProgress(std::string what, Progress::Output output)
    : what_(std::move(what)),
      now_s_(output.now_s),
      start_s_(now_s_()),
      progress_(std::move(output)) {}

void ByteProgress::update(std::uint64_t bytes_done, std::uint64_t bytes_total) {
  const std::lock_guard lock(mutex_);
  if (!progress_.due()) return;
  const double rate = static_cast<double>(bytes_done) / (now_s_() - start_s_);
  const double left_s = static_cast<double>(bytes_total - bytes_done) / rate;
  progress_.show(fmt::format("{} {:.1f} of {:.1f} GB, {:.2f} GB/s, {:.0f} s left", what_,
                             static_cast<double>(bytes_done) / 1e9,
                             static_cast<double>(bytes_total) / 1e9, rate / 1e9, left_s));
}

}  // namespace ingot
