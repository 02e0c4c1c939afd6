#pragma once

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/base/error.hpp"
#include "src/batch/batch_job.hpp"

namespace ingot {

/// What a batch says about itself: a line for people, and lines of JSON for a file.
class GenerateReport {
 public:
  /// @param max_batch   requests that may run at once
  /// @param input_bytes length of the input, where it is known; 0: it is not
  GenerateReport(int max_batch, std::int64_t input_bytes)
      : max_batch_(max_batch), input_bytes_(input_bytes) {}

  /// Writes a line of JSON there now and then. Error: io.
  [[nodiscard]] Result<void> open_stats(const std::filesystem::path& file);

  /// Counts and rates since the start.
  std::string summary(const BatchCounts& counts, const Scheduler::Totals& totals) const;
  /// The same with what runs now, and the time that is left.
  std::string progress(const BatchCounts& counts, const Scheduler& scheduler) const;
  /// Writes a line to the statistics where a second has gone by, or at the end.
  void write_stats(const BatchCounts& counts, const Scheduler& scheduler, bool end);

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double occupancy(const Scheduler::Totals& totals) const;

  struct CloseFile {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };

  int max_batch_;
  std::int64_t input_bytes_;
  Clock::time_point start_ = Clock::now();
  std::unique_ptr<std::FILE, CloseFile> stats_;
  std::filesystem::path stats_file_;
  bool stats_failed_ = false;  ///< which was said
  double stats_at_s_ = 0;
};

}  // namespace ingot
