#include "src/cli/generate_command.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "runtime/base/log.hpp"
#include "src/batch/batch_job.hpp"
#include "src/batch/output_file.hpp"
#include "src/cli/engine_counts.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/progress.hpp"

namespace ingot {
namespace {

/// The open input; standard input is not ours to close.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) {
    if (path == "-") {
      fd_ = STDIN_FILENO;
      return;
    }
    if (std::error_code error; std::filesystem::is_directory(path, error)) {
      throw EngineError(ErrorCode::invalid_argument,
                        fmt::format("reading {}: this is a folder, not a file", path.string()));
    }
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) {
      throw EngineError(ErrorCode::not_found,
                        fmt::format("reading {}: {}", path.string(), std::strerror(errno)));
    }
    owned_ = true;
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() {
    if (owned_) ::close(fd_);
  }

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  bool owned_ = false;
};

BatchFormat format_of(const GenerateOptions& options) {
  if (options.format == "jsonl") return BatchFormat::jsonl;
  if (options.format == "text") return BatchFormat::text;
  const std::string extension = options.input.extension().string();
  if (extension == ".jsonl") return BatchFormat::jsonl;
  if (extension == ".txt") return BatchFormat::text;
  throw EngineError(
      ErrorCode::invalid_argument,
      fmt::format("reading {}: neither .jsonl nor .txt; say --format jsonl or --format "
                  "text",
                  options.input.string()));
}

/// Seconds and token rates since the start.
class Rates {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  std::string text(const BatchCounts& counts, const Scheduler::Totals& totals) const {
    const double elapsed = std::max(seconds(), 1e-9);
    return fmt::format(
        "{} answered, {} failed; tokens in {} ({:.0f}/s), out {} ({:.1f}/s); {:.1f} s",
        counts.answered, counts.failed, totals.prompt_tokens,
        static_cast<double>(totals.prompt_tokens) / elapsed, totals.generated_tokens,
        static_cast<double>(totals.generated_tokens) / elapsed, elapsed);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

BatchOptions batch_options(const GenerateOptions& options, const LoadedModel& model,
                           BatchFormat format) {
  const Settings& settings = options.settings;
  BatchOptions batch;
  batch.format = format;
  batch.plain_text = options.text;
  batch.max_waiting = static_cast<std::size_t>(settings.max_batch);
  BatchDefaults& defaults = batch.defaults;
  defaults.sampling = sampling_params(settings, 0);
  defaults.seed = defaults.sampling.seed;
  defaults.thinking = thinking_from_name(settings.thinking);
  defaults.keep_thinking = settings.keep_thinking;
  defaults.system = settings.system;
  defaults.model = model.name;
  defaults.efforts = model.efforts;
  defaults.ignore_unknown = options.ignore_unknown;
  return batch;
}

int run_job(const GenerateOptions& options, BatchFormat format, const InputFile& input,
            OutputFile& output, LoadedModel& model, const InterruptGuard& interrupt) {
  Scheduler scheduler(*model.engine, *model.tokenizer, scheduler_options(options.settings));
  BatchJob job(scheduler, *model.tokenizer, batch_options(options, model, format));
  LineReader lines(input.fd(), options.input.string(), kMaxLineBytes, interrupt.wake_fd());
  Progress progress(Progress::standard_error());
  const Rates rates;

  BatchJob::Hooks hooks;
  hooks.write = [&](std::string_view text) { return output.append(text); };
  hooks.should_stop = [&] { return interrupt.requested() != 0; };
  hooks.on_progress = [&](const BatchCounts& counts) {
    if (options.quiet || !progress.due()) return;
    progress.show(
        fmt::format("{}; {} running", rates.text(counts, scheduler.totals()), scheduler.running()));
  };
  hooks.on_error = [&](const BatchError& error) {
    // With plain text the output has no room for the reason.
    if (!options.text) return;
    progress.clear();
    log::warn("line {}: {}", error.line, error.message);
  };
  const auto ran = job.run(lines, hooks);
  progress.clear();
  if (output.reader_gone()) return kClosedPipeStatus;
  const BatchCounts counts = value_or_throw(ran);

  if (counts.interrupted) {
    log::warn("interrupted: {}; {}", rates.text(counts, scheduler.totals()),
              output.empty()
                  ? std::string("no line was finished")
                  : fmt::format("the finished lines are in {}", output.partial().string()));
    return interrupted_status(interrupt.requested());
  }
  value_or_throw(output.commit());
  if (!options.quiet) {
    log::info("{}{}", rates.text(counts, scheduler.totals()),
              counts.blank > 0 ? fmt::format("; {} blank lines skipped", counts.blank) : "");
  }
  return counts.failed > 0 ? 1 : 0;
}

}  // namespace

int run_generate(const GenerateOptions& options) {
  ignore_closed_pipes();
  const BatchFormat format = format_of(options);
  const InputFile input(options.input);
  value_or_throw(OutputFile::check(options.output, options.input, options.force));
  OpenedModel opened =
      value_or_throw(open_model(options.settings, options.environment, WithTokenizer::yes));
  value_or_throw(check_sampling(options.settings, opened.config()));
  value_or_throw(check_effort(thinking_from_name(options.settings.thinking), opened.efforts));
  LoadedModel model =
      value_or_throw(load_weights(std::move(opened), options.settings, options.environment));
  // Only now: what ends the program while it loads leaves nothing behind, and what comes from here
  // on is a request.
  const InterruptGuard interrupt;
  OutputFile output =
      value_or_throw(OutputFile::create(options.output, options.input, options.force));
  const int status = run_job(options, format, input, output, model, interrupt);
  if (options.stats) print_engine_counts(*model.engine);
  return status;
}

}  // namespace ingot
