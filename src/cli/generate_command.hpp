#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "src/batch/input_shard.hpp"
#include "src/cli/environment.hpp"
#include "src/cli/settings.hpp"

namespace ingot {

struct GenerateOptions {
  Settings settings;
  Environment environment;
  std::filesystem::path input;          ///< "-" is standard input
  std::filesystem::path output;         ///< "-" is standard output
  std::string format = "auto";          ///< auto, jsonl or text
  bool text = false;                    ///< plain answers instead of objects
  bool force = false;                   ///< an existing output may be replaced
  bool ignore_unknown = false;          ///< request fields that we do not know are no error
  bool quiet = false;                   ///< no progress, no summary
  bool input_order = false;             ///< answers in the order of their lines; --text's default
  bool resume = false;                  ///< an earlier run is gone on with
  bool retry_failed = false;            ///< of that run the lines that failed are answered again
  bool longest_first = false;           ///< of the lines that wait the longest begins first
  bool stop_when_full = false;          ///< a full disk ends the run instead of waiting for room
  std::filesystem::path line_template;  ///< --template: the body that each line's fields fill
  std::filesystem::path stats;          ///< --stats: lines of JSON
  InputShard shard;                     ///< --shard I/N
  /// --merge: outputs to put together, instead of answering anything.
  std::vector<std::filesystem::path> merge;
};

/// `ingot generate`: answers every line of a file.
/// Returns the exit status: 0 all lines answered, 1 some failed, in this run or in one that is gone
/// on with, 130 interrupted (what was answered
/// is kept). Throws EngineError before anything is started.
int run_generate(const GenerateOptions& options);

/// "2/8". Error: invalid_argument.
[[nodiscard]] Result<InputShard> parse_shard(std::string_view text);

}  // namespace ingot
