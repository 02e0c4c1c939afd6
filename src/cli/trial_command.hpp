#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/cli/kernel_cache.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot {

/// The hidden subcommand by which the program runs itself to try kernels on a card.
inline constexpr const char* kTrialWorkerCommand = "trial-worker";

/// What a trial worker is told.
struct TrialWorkerOptions {
  KernelCacheOptions cache;  ///< where it finds default kernels
  std::filesystem::path config_json;
  int tp_size = 1;
  /// Ordinals by rank. The first one's card tries what one rank does by itself; with those of all
  /// ranks, what they launch together is tried too.
  std::vector<int> devices{0};
  int jobs = 1;
  std::vector<StepBucket> buckets;
};

/// The command line of a worker, the program in front.
std::vector<std::string> trial_worker_command(const TrialWorkerOptions& options);
/// The reverse, of what follows the subcommand. Error: invalid_argument.
[[nodiscard]] Result<TrialWorkerOptions> parse_trial_worker(
    const std::vector<std::string>& arguments);

/// Body of the hidden subcommand: answers trials over the channel until it closes. Returns the exit
/// status; throws EngineError where it cannot begin.
int run_trial_worker(const std::vector<std::string>& arguments);

}  // namespace ingot
