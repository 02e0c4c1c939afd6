#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "src/cli/kernel_cache.hpp"

namespace ingot {

struct CacheOptions {
  enum class Action { list, verify, explain, gc, export_bundle, import_bundle };

  KernelCacheOptions cache;
  Action action = Action::list;
  std::vector<std::string> archs;   ///< list, export: only these; explain: the first
  std::string family;               ///< explain
  std::vector<std::string> params;  ///< explain: NAME=VALUE; others have their defaults
  std::filesystem::path file;       ///< export, import
  bool force = false;               ///< export: a file that is there may be replaced
  std::uint64_t most_bytes = std::uint64_t{4} << 30;          ///< gc
  std::chrono::hours most_age = std::chrono::hours(24 * 90);  ///< gc
  bool table = false;  ///< list: the tuning choices alone, in Markdown
  bool json = false;
};

/// `ingot cache list|verify|explain|gc|export|import`: looks after the kernel cache and the
/// tuning records. Results go to
/// `out`. Returns the exit status: 0, or 1 where verify found damage.
/// Throws EngineError for bad input.
int run_cache(const CacheOptions& options, std::FILE* out);

}  // namespace ingot
