#pragma once

#include <span>
#include <string>
#include <variant>

#include "runtime/base/error.hpp"
#include "src/cli/bench_command.hpp"
#include "src/cli/cache_command.hpp"
#include "src/cli/chat_command.hpp"
#include "src/cli/doctor_command.hpp"
#include "src/cli/generate_command.hpp"
#include "src/cli/inspect_command.hpp"
#include "src/cli/prewarm_command.hpp"
#include "src/cli/score_command.hpp"
#include "src/cli/synth_command.hpp"
#include "src/cli/tokens_command.hpp"

namespace ingot {

/// `--help` or `--version`: text for standard output.
struct PrintAndExit {
  std::string text;
};

using Command = std::variant<PrintAndExit, ChatOptions, GenerateOptions, ScoreOptions,
                             TokensOptions, InspectOptions, SynthOptions, DoctorOptions,
                             PrewarmOptions, CacheOptions, BenchOptions>;

/// What the command line, the settings file that it names and the environment ask for. Every value
/// is checked against its range here; whether files exist is the command's affair.
/// Error: invalid_argument (usage), or what reading the settings file reports.
[[nodiscard]] Result<Command> parse_command_line(std::span<const char* const> arguments,
                                                 const Environment& environment);

/// The one place that reads environment variables.
Environment read_environment();

}  // namespace ingot
