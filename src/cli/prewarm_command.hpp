#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "src/cli/kernel_cache.hpp"

namespace ingot {

struct PrewarmOptions {
  KernelCacheOptions cache;
  std::filesystem::path config_json;  ///< of the model
  std::vector<std::string> archs;     ///< empty: those of this machine's cards
  int tp_size = 1;
  std::vector<int> batch_buckets{1};
  std::vector<std::int64_t> context_buckets{4096};
  int jobs = 1;                       ///< compiles at a time
  bool all_candidates = false;        ///< everything that tuning could try, not the defaults alone
  bool dry_run = false;               ///< say what would be compiled, how long and how big
  std::vector<std::string> pins;      ///< FAMILY.PARAM=VALUE
  std::vector<std::string> disabled;  ///< families
  double time_budget_s = std::numeric_limits<double>::infinity();  ///< for tuning; 0: none
  bool retune = false;                                             ///< tune what has records again
  bool json = false;
};

/// `ingot prewarm`: fills the kernel cache for a model: the defaults, and the choices of the tuning
/// records that are there. Without `archs` it then tunes for the cards of this machine what has no
/// record, within the budget, and says for each family what that brought. Needs no GPU where
/// `archs` are given.
/// A line for each kernel that it compiled and a summary go to `out`, progress and failures to
/// standard error. Returns the exit status: 0 all kernels are there, 1 a kernel
/// failed to compile or to be tuned, 128 + the signal that ended the tuning.
/// Throws EngineError for bad input.
int run_prewarm(const PrewarmOptions& options, std::FILE* out);

}  // namespace ingot
