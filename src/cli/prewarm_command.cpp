#include "src/cli/prewarm_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "runtime/base/log.hpp"
#include "src/cli/card_tuning.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/json_line.hpp"
#include "src/cli/prewarm_plan.hpp"
#include "src/cli/progress.hpp"
#include "src/cli/tuning_report.hpp"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

std::string title(const jit::KernelRequest& request) {
  return fmt::format("{} {}", request.arch, jit::describe(request.variant));
}

std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

/// Compiles what is missing, `jobs` at a time.
class Prewarm {
 public:
  Prewarm(const PrewarmOptions& options, jit::KernelStore& store,
          std::vector<jit::KernelRequest> missing, std::FILE* out)
      : options_(options),
        store_(store),
        missing_(std::move(missing)),
        out_(out),
        progress_(Progress::standard_error()),
        start_(Clock::now()) {}

  void run() {
    // Processes that fill one cache at a time begin at different kernels: each then finds much of
    // what the others made.
    const auto first = static_cast<std::size_t>(::getpid()) * 0x9e3779b9U;
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < options_.jobs; ++i) {
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < missing_.size(); at = next++) {
          compile(missing_[(first + at) % missing_.size()]);
        }
      });
    }
    threads.clear();  // joins
    if (error_) std::rethrow_exception(error_);
  }

  int failed() const { return failed_; }
  int spilled() const { return spilled_; }

 private:
  void compile(const jit::KernelRequest& request) {
    try {
      const auto entry = store_.get(request);
      const std::lock_guard lock(mutex_);
      if (entry) {
        print_compiled(request, (*entry)->kernel);
      } else {
        note_failure(request, entry.error());
      }
      ++done_;
      show_progress(request);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }

  void print_compiled(const jit::KernelRequest& request, const jit::CompiledKernel& kernel) {
    progress_.clear();
    if (options_.json) {
      nlohmann::ordered_json line;
      line["kernel"] = jit::describe(request.variant);
      line["arch"] = request.arch;
      line["compile_seconds"] = kernel.seconds;
      line["registers"] = kernel.resources.registers;
      line["spill_bytes"] = kernel.resources.spill_store_bytes;
      line["static_smem_bytes"] = kernel.resources.smem_bytes;
      line["cubin_bytes"] = kernel.cubin.size();
      fmt::print(out_, "{}\n", json_line(line));
    } else {
      fmt::print(out_, "compiled {} in {:.2f} s: {} registers\n", title(request), kernel.seconds,
                 kernel.resources.registers);
    }
  }

  void note_failure(const jit::KernelRequest& request, const Error& error) {
    // A candidate that spills is barred by design; everything else is a failure of this run.
    if (!request.allow_spills && error.code == ErrorCode::unsupported) {
      ++spilled_;
      return;
    }
    ++failed_;
    progress_.clear();
    log::error("{}: {}", title(request), error.message);
  }

  void show_progress(const jit::KernelRequest& request) {
    if (!progress_.due()) return;
    const double taken = std::chrono::duration<double>(Clock::now() - start_).count();
    const double left =
        taken / static_cast<double>(done_) * static_cast<double>(missing_.size() - done_);
    progress_.show(fmt::format("compiling: {} of {} kernels, {} left; {}", done_, missing_.size(),
                               duration_text(left), title(request)));
  }

  const PrewarmOptions& options_;
  jit::KernelStore& store_;
  const std::vector<jit::KernelRequest> missing_;
  std::FILE* out_;

  std::mutex mutex_;
  Progress progress_;
  Clock::time_point start_;
  std::size_t done_ = 0;
  int failed_ = 0;
  int spilled_ = 0;
  std::exception_ptr error_;
};

/// What the entries that are there took, to tell what the missing ones will.
struct Average {
  double seconds = 0;
  double bytes = 0;
  int count = 0;
};

Average average_of(const std::vector<jit::CubinCache>& layers) {
  Average average;
  for (const auto& layer : layers) {
    for (const auto& file : layer.files()) {
      const auto entry = jit::CubinCache::read(file.path);
      if (!entry || entry->is_barred()) continue;
      average.seconds += entry->kernel.seconds;
      average.bytes += static_cast<double>(file.bytes);
      ++average.count;
    }
  }
  if (average.count > 0) {
    average.seconds /= average.count;
    average.bytes /= average.count;
  }
  return average;
}

nlohmann::ordered_json coverage_json(const PrewarmPlan& plan) {
  nlohmann::ordered_json cards = nlohmann::ordered_json::array();
  for (const TuningCoverage& card : plan.coverage) {
    cards.push_back({{"device", card.device.name},
                     {"arch", card.device.arch},
                     {"kernels_with_choice", card.with_choice},
                     {"tuned", card.tuned},
                     {"open", card.open},
                     {"collectives", card.collectives},
                     {"untried", card.untried}});
  }
  return cards;
}

void print_coverage(const PrewarmPlan& plan, int tp_size, std::FILE* out) {
  for (const TuningCoverage& card : plan.coverage) {
    fmt::print(out, "{}: tuning choices for {} of {} kernels{}\n", card.device.name, card.tuned,
               card.with_choice, card.tuned < card.with_choice ? ", defaults for the others" : "");
    if (!card.open.empty()) fmt::print(out, "  not tuned yet: {}\n", some_titles(card.open));
    if (!card.collectives.empty()) {
      fmt::print(out, "  tuned only on {} such cards at once, one for each rank: {}\n", tp_size,
                 titles_by_family(card.collectives));
    }
    if (card.untried > 0) {
      fmt::print(out,
                 "  besides, {} kernels of prompts' steps of more than {} tokens behind a long "
                 "context are never tuned: they run with their defaults\n",
                 card.untried, kMostNarrowRows);
    }
  }
}

int print_dry_run(const PrewarmOptions& options, const PrewarmPlan& plan, std::size_t missing,
                  std::FILE* out) {
  const Average average = average_of(kernel_layers(options.cache));
  const double seconds = average.seconds * static_cast<double>(missing) / options.jobs;
  const double bytes = average.bytes * static_cast<double>(missing);
  const std::size_t all = plan.kernels.size();
  if (options.json) {
    nlohmann::ordered_json line;
    line["kernels"] = all;
    line["to_compile"] = missing;
    line["estimated_seconds"] =
        average.count > 0 ? nlohmann::ordered_json(seconds) : nlohmann::ordered_json(nullptr);
    line["estimated_bytes"] =
        average.count > 0 ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json(nullptr);
    line["tuning"] = coverage_json(plan);
    fmt::print(out, "{}\n", json_line(line));
    return 0;
  }
  if (average.count > 0 || missing == 0) {
    fmt::print(out, "would compile {} of {} kernels: about {} with --jobs {}, {:.1f} MiB\n",
               missing, all, duration_text(seconds), options.jobs, bytes / (1 << 20));
  } else {
    fmt::print(out,
               "would compile {} of {} kernels; how long is not known before the first is "
               "compiled\n",
               missing, all);
  }
  print_coverage(plan, options.tp_size, out);
  return 0;
}

struct TunedCards {
  std::vector<TuningRecord> records;
  int failed = 0;
  int signal = 0;
};

/// Tunes on every kind of card of this machine, one after the other; the budget is that of all.
TunedCards tune_cards(const PrewarmOptions& options, PrewarmPlan& plan, jit::KernelStore& store,
                      TuningStore& records, std::FILE* out) {
  TunedCards all;
  double left_s = options.time_budget_s;
  for (const Card& card : plan.local) {
    const CardTuning tuning{
        .cache = options.cache,
        .config_json = options.config_json,
        .config = plan.config,
        .tp_size = options.tp_size,
        .buckets = tuned_buckets(options, plan.config),
        .card = card,
        .devices = value_or_throw(ordinals_of(card, options.cache, options.tp_size)),
        .jobs = options.jobs,
        .budget_s = left_s,
        .retune = options.retune};
    std::vector<std::optional<TuningRecord>> before;
    if (options.retune) before = records_before(tuning, store, records);
    const CardTuned tuned = tune_card(tuning, store, records);
    left_s = std::max(left_s - tuned.report.seconds, 0.0);
    const TuneReport& report = tuned.report;
    for (std::size_t i = 0; i < report.requests.size(); ++i) {
      const TunedRequest& request = report.requests[i];
      if (request.record) all.records.push_back(*request.record);
      if (request.state != TuneState::failed) continue;
      const std::string line = fmt::format("tuning {}: {}", request.title, request.reason);
      // Cards that do not reach each other's memory run: through NCCL, untuned.
      const bool collective = i >= tuned.plan.requests.size();
      collective ? log::warn("{}", line) : log::error("{}", line);
      all.failed += collective ? 0 : 1;
    }
    all.signal = tuned.signal;
    print_coverage(tuned, card, options.json, out);
    if (options.retune) print_comparison(tuned, before, options.json, out);
    if (all.signal != 0) break;
  }
  return all;
}

int status(int failed, const TunedCards& tuned) {
  if (tuned.signal != 0) return interrupted_status(tuned.signal);
  return failed + tuned.failed == 0 ? 0 : 1;
}

}  // namespace

int run_prewarm(const PrewarmOptions& options, std::FILE* out) {
  const auto start = Clock::now();
  const auto store = value_or_throw(open_kernel_store(options.cache, options.jobs));
  const auto records = open_tuning_store(options.cache);
  PrewarmPlan plan = plan_prewarm(options, *store, *records);
  const std::vector<jit::KernelRequest>& requests = plan.kernels;
  if (requests.empty()) {
    throw EngineError(ErrorCode::unsupported,
                      fmt::format("no kernel family runs on {}", fmt::join(plan.archs, ", ")));
  }
  std::vector<jit::KernelRequest> missing;
  int barred = 0;
  int barred_defaults = 0;
  for (const jit::KernelRequest& request : requests) {
    if (store->would_compile(request)) {
      missing.push_back(request);
    } else if (!options.dry_run) {
      const auto entry = store->get(request);
      if (entry) continue;
      ++barred;
      if (request.allow_spills) {
        ++barred_defaults;
        log::error("{}: {}", title(request), entry.error().message);
      }
    }
  }
  if (options.dry_run) return print_dry_run(options, plan, missing.size(), out);

  Prewarm prewarm(options, *store, missing, out);
  if (!missing.empty()) prewarm.run();
  TunedCards tuned;
  if (options.time_budget_s > 0 && !options.cache.frozen && !plan.local.empty()) {
    tuned = tune_cards(options, plan, *store, *records, out);
    print_gains(tuned.records, options.json, out);
    plan.coverage = plan_prewarm(options, *store, *records).coverage;
  }
  const auto stats = store->stats();
  const int failed = prewarm.failed() + barred_defaults;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string where = options.cache.cache_dirs.empty()
                                ? "memory"
                                : kernel_layers(options.cache).front().directory().string();
  if (options.json) {
    nlohmann::ordered_json line;
    line["kernels"] = requests.size();
    line["archs"] = plan.archs;
    line["compiled"] = stats.compiled;
    line["found"] = stats.hits;
    line["barred"] = barred + prewarm.spilled();
    line["failed"] = failed;
    line["unsaved"] = stats.unsaved;
    line["seconds"] = seconds;
    line["cache"] = where;
    line["tuning"] = coverage_json(plan);
    fmt::print(out, "{}\n", json_line(line));
    return status(failed, tuned);
  }
  if (missing.empty() && failed == 0) {
    fmt::print(out, "nothing to compile: all {} kernels for {} are in {}\n", requests.size(),
               fmt::join(plan.archs, ", "), where);
  } else {
    fmt::print(out,
               "{} kernels for {}: {} compiled, {} found, {} barred, {} failed, in {:.1f} s; {}\n",
               requests.size(), fmt::join(plan.archs, ", "), stats.compiled - failed, stats.hits,
               barred + prewarm.spilled(), failed, seconds, where);
  }
  print_coverage(plan, options.tp_size, out);
  return status(failed, tuned);
}

}  // namespace ingot
