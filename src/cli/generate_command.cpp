#include "src/cli/generate_command.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <utility>

#include "runtime/base/log.hpp"
#include "runtime/base/why_not.hpp"
#include "src/batch/batch_job.hpp"
#include "src/batch/earlier_output.hpp"
#include "src/batch/merge_outputs.hpp"
#include "src/batch/output_file.hpp"
#include "src/cli/generate_report.hpp"
#include "src/cli/input_file.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/model_loader.hpp"
#include "src/cli/numeric_report.hpp"
#include "src/cli/progress.hpp"
#include "src/cli/read_text_file.hpp"
#include "src/text/utf8.hpp"

namespace ingot {
namespace {

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

/// Beginnings that lines have in common, kept beside what runs: a device engine has places for
/// them.
constexpr int kKeptPrefixes = 8;
/// Lines that are looked at to begin with the longest of them.
constexpr std::size_t kSortedLines = 256;
constexpr int kFullDiskWait_ms = 1000;
constexpr std::size_t kMaxTemplateBytes = std::size_t{16} << 20;

/// Whether it is, or will be, a regular file.
bool is_file(const std::filesystem::path& output) {
  std::error_code error;
  if (output == "-") return false;
  return !std::filesystem::exists(output, error) || std::filesystem::is_regular_file(output, error);
}

std::shared_ptr<const LineTemplate> read_template(const GenerateOptions& options) {
  const std::string json = value_or_throw(read_text_file(options.line_template, kMaxTemplateBytes));
  return std::make_shared<const LineTemplate>(
      value_or_throw(LineTemplate::parse(json, options.line_template.string())));
}

BatchOptions batch_options(const GenerateOptions& options, const LoadedModel& model,
                           BatchFormat format, DoneLines done) {
  const Settings& settings = options.settings;
  BatchOptions batch;
  batch.format = format;
  batch.plain_text = options.text;
  batch.max_waiting = static_cast<std::size_t>(settings.max_batch);
  if (options.longest_first) batch.max_waiting = std::max(batch.max_waiting, kSortedLines);
  batch.window = std::max(batch.window, 4 * batch.max_waiting);
  // A file of objects is brought into order at its end. What cannot be is written in order.
  const bool in_order = options.input_order && (options.text || !is_file(options.output));
  batch.order = in_order ? OutputOrder::input : OutputOrder::finish;
  batch.shard = options.shard;
  batch.done = std::move(done);
  if (!options.line_template.empty()) batch.line_template = read_template(options);
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

OutputFile::Existing existing_of(const GenerateOptions& options) {
  if (options.resume) return OutputFile::Existing::resume;
  if (options.force) return OutputFile::Existing::replace;
  const bool alone = options.text || !options.merge.empty();
  return alone ? OutputFile::Existing::refuse_alone : OutputFile::Existing::refuse;
}

/// What an earlier run has left, known to be of this input.
struct Earlier {
  DoneLines done;
  struct stat status {};  ///< of its file, as it was looked at; all 0: there was none
};

/// Looks at what an earlier run has left; changes nothing.
Earlier look_back(const GenerateOptions& options, BatchFormat format, InputFile& input) {
  Earlier earlier;
  const auto left = OutputFile::left(options.output);
  const FileDescriptor file(::open(left.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open() && errno == ENOENT) return earlier;
  if (!file.is_open() || ::fstat(file.get(), &earlier.status) != 0) {
    throw EngineError(ErrorCode::io,
                      fmt::format("going on with {}: {}", left.string(), why_not_read(errno)));
  }
  EarlierOutput output(left, options.retry_failed);
  value_or_throw(output.read(file.get()));
  if (output.empty()) return earlier;
  value_or_throw(input.keep_lines(output.last_line(), folder_of(left)));
  LineReader lines = input.lines();
  earlier.done = value_or_throw(output.compare(
      file.get(), lines, {input.name(), format, !options.line_template.empty(), options.shard}));
  return earlier;
}

/// Takes over the lines of an earlier run that stay.
void recover(const GenerateOptions& options, OutputFile& output, const struct stat& looked_at) {
  const bool same = output.is_unchanged(looked_at);
  value_or_throw(output.recover([&](std::string_view line, std::int64_t) -> Result<std::int64_t> {
    const auto answer = parse_answer_line(line);
    if (!same || !answer) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("going on with {}: another run has written it meanwhile; try "
                              "again",
                              options.output.string()));
    }
    return answer->failed && options.retry_failed ? 0 : answer->line;
  }));
}

std::int64_t size_of(const GenerateOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.input, error)) return 0;
  const auto bytes = std::filesystem::file_size(options.input, error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

/// One batch from its first line to its last.
class GenerateRun {
 public:
  GenerateRun(const GenerateOptions& options, OutputFile& output, LoadedModel& model,
              const InterruptGuard& interrupt)
      : options_(options),
        output_(output),
        interrupt_(interrupt),
        scheduler_(*model.engine, *model.tokenizer, scheduler_options_of(options)),
        report_(static_cast<int>(options.settings.max_batch), size_of(options)) {
    if (!options.stats.empty()) value_or_throw(report_.open_stats(options.stats));
  }

  int run(LoadedModel& model, BatchFormat format, InputFile& input, DoneLines done) {
    BatchJob job(scheduler_, *model.tokenizer,
                 batch_options(options_, model, format, std::move(done)));
    LineReader lines = input.lines(kMaxLineBytes, interrupt_.wake_fd());
    BatchJob::Hooks hooks;
    hooks.write = [&](std::string_view text) { return write(text); };
    hooks.on_written = [&](std::int64_t line, std::size_t bytes) {
      output_.note_line(line, bytes);
    };
    hooks.should_finish = [&] { return should_finish(); };
    hooks.should_stop = [&] { return interrupt_.count() > 1; };
    hooks.on_progress = [&](const BatchCounts& counts) { show(counts); };
    hooks.on_error = [&](const BatchError& error) {
      // With plain text the output has no room for the reason.
      if (!options_.text) return;
      progress_.clear();
      log::warn("line {}: {}", error.line, error.message);
    };
    const auto ran = job.run(lines, hooks);
    progress_.clear();
    report_numeric_faults(*model.engine);
    if (output_.reader_gone()) return kClosedPipeStatus;
    if (!ran && gave_up_waiting_) {
      log::warn("{}", ran.error().message);
      return interrupted_status(interrupt_.requested());
    }
    const BatchCounts counts = value_or_throw(ran);
    report_.write_stats(counts, scheduler_, true);
    return conclude(counts);
  }

 private:
  static SchedulerOptions scheduler_options_of(const GenerateOptions& options) {
    SchedulerOptions out = scheduler_options(options.settings);
    out.longest_first = options.longest_first;
    out.kept_prefixes = kKeptPrefixes;
    return out;
  }

  /// The first signal: no line is begun any more. A second one of the same kind ends the program,
  /// one of another kind the job.
  bool should_finish() {
    if (!finishing_ && interrupt_.requested() != 0) {
      finishing_ = true;
      if (scheduler_.running() > 0 && !options_.quiet) {
        progress_.clear();
        log::info("ending the {} lines in flight; once more drops them", scheduler_.running());
      }
    }
    return finishing_;
  }

  /// A full disk is waited for: somebody may make room. Whether to try again.
  bool wait_for_room(const Error& error, bool& said) {
    if (!output_.full() || options_.stop_when_full) return false;
    if (!std::exchange(said, true)) {
      progress_.clear();
      log::warn("{}; waiting for room (Ctrl-C ends the run)", error.message);
    }
    pollfd wake{interrupt_.wake_fd(), POLLIN, 0};
    if (interrupt_.requested() == 0) (void)::poll(&wake, 1, kFullDiskWait_ms);
    gave_up_waiting_ = interrupt_.requested() != 0;
    return !gave_up_waiting_;
  }

  Result<void> write(std::string_view text) {
    bool said = false;
    while (true) {
      auto written = output_.append(text);
      if (written) return written;
      text.remove_prefix(output_.taken());
      if (!wait_for_room(written.error(), said)) return written;
    }
  }

  /// Bringing the lines into order takes their room once more.
  Result<void> commit() {
    bool said = false;
    while (true) {
      auto done = output_.commit();
      if (done || !wait_for_room(done.error(), said)) return done;
    }
  }

  void show(const BatchCounts& counts) {
    value_or_throw(output_.sync_if_due());
    report_.write_stats(counts, scheduler_, false);
    if (options_.quiet || !progress_.due()) return;
    progress_.show(report_.progress(counts, scheduler_));
  }

  int conclude(const BatchCounts& counts) {
    const std::string summary = report_.summary(counts, scheduler_.totals());
    if (counts.interrupted) {
      log::warn("interrupted: {}; {}", summary,
                output_.empty()
                    ? std::string("no line was finished")
                    : fmt::format("{} are in {}{}",
                                  options_.text && options_.input_order
                                      ? "those before the first that was dropped"
                                      : "the finished lines",
                                  output_.partial().string(),
                                  options_.text || !output_.is_file() ? "" : "; --resume goes on"));
      return interrupted_status(interrupt_.requested());
    }
    if (const auto committed = commit(); !committed) {
      if (!gave_up_waiting_) throw EngineError(committed.error());
      log::warn("{}; --resume --order input brings them into order", committed.error().message);
      return interrupted_status(interrupt_.requested());
    }
    if (!options_.quiet) {
      const bool aligned = options_.text && options_.input_order;
      log::info("{}{}", summary,
                counts.blank > 0
                    ? fmt::format("; {} blank line{} {}", counts.blank,
                                  counts.blank == 1 ? "" : "s", aligned ? "left blank" : "skipped")
                    : "");
    }
    // As of a run that was not interrupted: the status is that of the output.
    return counts.failed + counts.failed_before > 0 ? 1 : 0;
  }

  const GenerateOptions& options_;
  OutputFile& output_;
  const InterruptGuard& interrupt_;
  Scheduler scheduler_;
  GenerateReport report_;
  Progress progress_{Progress::standard_error()};
  bool finishing_ = false;  ///< a signal has come
  bool gave_up_waiting_ = false;
};

/// Refuses statistics that would be written over what the run reads or writes, or over a file that
/// nobody gave up. Pipes and devices are nobody's loss.
void check_stats_place(const GenerateOptions& options) {
  namespace fs = std::filesystem;
  if (options.stats.empty()) return;
  const auto refuse = [&](std::string_view why) {
    throw EngineError(ErrorCode::invalid_argument,
                      fmt::format("writing statistics to {}: {}", options.stats.string(), why));
  };
  fs::path partial = options.output;
  partial += ".partial";
  for (const fs::path& file : {options.input, options.output, partial, options.line_template}) {
    std::error_code error;
    const bool same_name = !file.empty() && fs::weakly_canonical(file, error) ==
                                                fs::weakly_canonical(options.stats, error);
    if (same_name || fs::equivalent(file, options.stats, error))
      refuse("the run reads or writes that file itself; name another file");
  }
  std::error_code error;
  if (!options.force && !options.resume && fs::is_regular_file(options.stats, error))
    refuse("it is there already; give --force to replace it, or name another file");
}

int run_merge(const GenerateOptions& options) {
  const bool text = options.format == "text" || options.input.extension() == ".txt";
  const BatchFormat format = text ? BatchFormat::text : BatchFormat::jsonl;
  InputFile input(options.input, format);
  OutputMerge merge;
  for (const auto& file : options.merge) {
    std::error_code error;
    if (std::filesystem::equivalent(file, options.output, error)) {
      throw EngineError(
          ErrorCode::invalid_argument,
          fmt::format("merging {}: it is the output, too; name another output", file.string()));
    }
    value_or_throw(merge.add(file));
  }
  OutputFile output =
      value_or_throw(OutputFile::create(options.output, options.input, existing_of(options)));
  LineReader lines = input.lines();
  const auto merged = merge.write(lines, format, !options.line_template.empty(),
                                  [&](std::string_view bytes) { return output.append(bytes); });
  if (output.reader_gone()) return kClosedPipeStatus;
  const OutputMerge::Counts counts = value_or_throw(merged);
  value_or_throw(output.commit());
  if (!counts.repeated.empty()) {
    log::warn("{}: shards do not know each other's, and --resume refuses such an output",
              counts.repeated);
  }
  if (!options.quiet) {
    log::info("{} answers of {} files are in {}; {} of them failed", counts.lines,
              options.merge.size(), options.output.string(), counts.failed);
  }
  return counts.failed > 0 ? 1 : 0;
}

}  // namespace

Result<InputShard> parse_shard(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  InputShard shard;
  const auto number = [](std::string_view digits, std::int64_t& to) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), to);
    return error == std::errc{} && end == digits.data() + digits.size();
  };
  if (slash < text.size() && number(text.substr(0, slash), shard.index) &&
      number(text.substr(slash + 1), shard.count) && shard.index >= 1 &&
      shard.index <= shard.count) {
    return shard;
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("--shard must be I/N with I from 1 to N, as 2/8, not \"{}\"",
                          cut_utf8(text, 60)));
}

int run_generate(const GenerateOptions& options) {
  ignore_closed_pipes();
  if (!options.merge.empty()) return run_merge(options);
  if (options.resume && options.text) {
    throw EngineError(
        ErrorCode::invalid_argument,
        "--resume: answers that are written with --text do not say whose they are; begin "
        "anew with --force instead");
  }
  const BatchFormat format = format_of(options);
  InputFile input(options.input, format);
  value_or_throw(OutputFile::check(options.output, options.input, existing_of(options)));
  check_stats_place(options);
  if (!options.line_template.empty()) (void)read_template(options);
  Earlier earlier;
  if (options.resume) earlier = look_back(options, format, input);
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
      value_or_throw(OutputFile::create(options.output, options.input, existing_of(options)));
  if (options.input_order && !options.text) output.remember_lines();
  if (options.resume) recover(options, output, earlier.status);
  GenerateRun run(options, output, model, interrupt);
  return run.run(model, format, input, std::move(earlier.done));
}

}  // namespace ingot
