#include "src/cli/program.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <span>
#include <system_error>

#include "runtime/base/log.hpp"
#include "runtime/base/why_not.hpp"
#include "runtime/jit/compile_worker.hpp"
#include "src/cli/builtin_model.hpp"
#include "src/cli/options.hpp"
#include "src/cli/trial_command.hpp"

namespace ingot {
namespace {

// One overload a command.
int run(const PrintAndExit& command) {
  fmt::print("{}", command.text);
  return 0;
}
int run(const ChatOptions& options) {
  return run_chat(options);
}
int run(const GenerateOptions& options) {
  return run_generate(options);
}
int run(const ScoreOptions& options) {
  return run_score(options);
}
int run(const TokensOptions& options) {
  return run_tokens(options, stdout);
}
int run(const InspectOptions& options) {
  return run_inspect(options, stdout);
}
int run(const SynthOptions& options) {
  return run_synth(options);
}
int run(const DoctorOptions& options) {
  return run_doctor(options);
}
int run(const PrewarmOptions& options) {
  return run_prewarm(options, stdout);
}
int run(const BenchOptions& options) {
  return run_bench(options, stdout);
}
int run(const CacheOptions& options) {
  return run_cache(options, stdout);
}

/// The model that a command is to open; nullptr for commands that open none, and for the doctor,
/// which looks for itself.
template <class Options>
auto* model_of(Options& options) {
  if constexpr (requires { options.settings.model; }) {
    return &options.settings.model;
  } else if constexpr (requires { options.model; }) {
    return &options.model;
  } else {
    return static_cast<std::string*>(nullptr);
  }
}

/// Where the command line names no model, the one that ingot brings along; says so.
Result<void> choose_model(Command& command, const Environment& environment) {
  return std::visit(
      [&](auto& options) -> Result<void> {
        auto* const model = model_of(options);
        if (model == nullptr || !model->empty()) return {};
        if constexpr (requires { options.merge; }) {
          if (!options.merge.empty()) return {};  // answers are put together without one
        }
        const auto builtin = find_builtin_model(environment.program);
        if (!builtin) return Unexpected(builtin.error());
        log::info("no --model is given: taking the built-in one, {}", builtin->string());
        *model = builtin->string();
        return {};
      },
      command);
}

/// A standard stream that was closed before we began would be the next file that is opened. Reading
/// it finds its end now, writing to it fails.
void occupy_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)::open("/dev/null", O_RDONLY);
  }
}

int report(const Error& error) {
  log::error("{}", error.message);
  return exit_status(error.code);
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  occupy_closed_streams();
  try {
    // The program runs itself to compile and to try kernels; nobody types these commands.
    if (argc > 1 && std::string_view(argv[1]) == jit::kCompileWorkerCommand) {
      return jit::run_compile_worker({argv + 2, argv + argc});
    }
    if (argc > 1 && std::string_view(argv[1]) == kTrialWorkerCommand) {
      return run_trial_worker({argv + 2, argv + argc});
    }
    const Environment environment = read_environment();
    auto command = parse_command_line(std::span(argv, static_cast<std::size_t>(argc)), environment);
    if (!command) return report(command.error());
    if (auto chosen = choose_model(*command, environment); !chosen) return report(chosen.error());
    const int status = std::visit([](const auto& options) { return run(options); }, *command);
    // A full disk behind standard output shows only now.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      return report(
          {ErrorCode::io, fmt::format("writing to standard output: {}", why_not_written(errno))});
    }
    return status;
  } catch (const EngineError& error) {
    return report(error.error());
  } catch (const std::system_error& error) {
    // A full disk behind standard output, or one that shows before the end.
    if (std::ferror(stdout) == 0) return report({ErrorCode::io, error.what()});
    return report({ErrorCode::io, fmt::format("writing to standard output: {}",
                                              why_not_written(error.code().value()))});
  } catch (const std::bad_alloc&) {
    return report({ErrorCode::io, "out of memory: a smaller --context or --max-batch needs less"});
  } catch (const std::exception& error) {
    return report({ErrorCode::io, error.what()});
  }
}

}  // namespace ingot
