#pragma once

#include <filesystem>
#include <string>

#include "src/cli/environment.hpp"
#include "src/cli/settings.hpp"

namespace ingot {

struct GenerateOptions {
  Settings settings;
  Environment environment;
  std::filesystem::path input;   ///< "-" is standard input
  std::filesystem::path output;  ///< "-" is standard output
  std::string format = "auto";   ///< auto, jsonl or text
  bool text = false;             ///< plain answers instead of objects
  bool force = false;            ///< an existing output may be replaced
  bool ignore_unknown = false;   ///< request fields that we do not know are no error
  bool quiet = false;            ///< no progress, no summary
  bool stats = false;            ///< at the end a line of JSON on standard error: engine counts
};

/// `ingot generate`: answers every line of a file.
/// Returns the exit status: 0 all lines answered, 1 some failed, 130 interrupted (what was answered
/// is kept). Throws EngineError before anything is started.
int run_generate(const GenerateOptions& options);

}  // namespace ingot
