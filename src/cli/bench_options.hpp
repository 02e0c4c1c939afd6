#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/cli/bench_command.hpp"
#include "src/cli/settings.hpp"

namespace CLI {
class App;
}

namespace ingot {

/// The flags of `ingot bench` and its subcommands as given.
struct BenchFlags {
  std::string model, config, layers, tp = "1", jobs, json, svg;
  std::string batch = "1,16,64", context = "2K,32K", steps = "20";
  std::string tokens = "8K", chunk = "4K";
  std::string concurrency = "1,16,64", input = "512", output = "256", requests, device = "auto";
  std::string seed = "1";
  std::string families, heads, keys = "4K,128K", prompt_rows;
  std::vector<std::string> pins, disabled;
  std::string template_dir;
  bool synthetic = false, trace = false, deterministic = false, all_candidates = false,
       force = false;
};

CLI::App* add_bench(CLI::App& app, BenchFlags& flags);
/// Errors: invalid_argument.
[[nodiscard]] Result<BenchOptions> bench_options(const CLI::App& bench, const BenchFlags& flags,
                                                 const Settings& settings,
                                                 const Environment& environment);

}  // namespace ingot
