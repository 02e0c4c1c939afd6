#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/cli/cache_command.hpp"
#include "src/cli/environment.hpp"
#include "src/cli/prewarm_command.hpp"
#include "src/cli/settings.hpp"

namespace CLI {
class App;
}

namespace ingot {

/// The caches that the settings name, and where NVIDIA's libraries may lie.
KernelCacheOptions kernel_cache_options(const Settings& settings, const Environment& environment);

/// The flags of `ingot prewarm` as given.
struct PrewarmFlags {
  std::string model, config, archs, tp = "1", batch = "1,2,4,8,16,32,64,128,256,512,1K,2K,4K",
                                    context = "4096,32768,131072", jobs, template_dir, time_budget;
  std::vector<std::string> pins, disabled;
  bool all_candidates = false, dry_run = false, retune = false, json = false;
};

/// The flags of `ingot cache` and its subcommands as given.
struct CacheFlags {
  std::string archs, family, file, max_size = "4096", max_age = "90";
  std::vector<std::string> params;
  bool table = false, json = false, force = false;
};

CLI::App* add_prewarm(CLI::App& app, PrewarmFlags& flags);
/// Errors: invalid_argument.
[[nodiscard]] Result<PrewarmOptions> prewarm_options(const PrewarmFlags& flags,
                                                     const Settings& settings,
                                                     const Environment& environment);

CLI::App* add_cache(CLI::App& app, CacheFlags& flags);
[[nodiscard]] Result<CacheOptions> cache_options(const CLI::App& cache, const CacheFlags& flags,
                                                 const Settings& settings,
                                                 const Environment& environment);

}  // namespace ingot
