#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "src/cli/progress.hpp"

namespace ingot {

/// Progress of work that is counted in bytes: how much, how fast, how long still. Any thread may
/// call it.
class ByteProgress {
 public:
  /// @param what "hashing", "writing"; stands in front of every line
  ByteProgress(std::string what, Progress::Output output);

  void update(std::uint64_t bytes_done, std::uint64_t bytes_total);

 private:
  std::mutex mutex_;
  std::string what_;
  std::function<double()> now_s_;
  double start_s_;
  Progress progress_;
};

}  // namespace ingot
