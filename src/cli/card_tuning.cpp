#include "src/cli/card_tuning.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>
#include <thread>

#include "runtime/base/log.hpp"
#include "runtime/base/shared_library.hpp"
#include "src/cli/interrupt.hpp"
#include "src/cli/progress.hpp"
#include "src/cli/trial_command.hpp"
#include "tuner/child_bench.hpp"
#include "tuner/look_up.hpp"

namespace ingot {
namespace {

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Ends the program where a tuning has not ended a second after a signal asked for it: the trial in
/// work may have to compile all that its step needs. The trials' process ends with its channel, and
/// what was chosen is on the disk already.
class EndSoon {
 public:
  explicit EndSoon(const InterruptGuard& interrupt)
      : thread_([&interrupt](const std::stop_token& stop) {
          constexpr int kLook_ms = 50, kGrace_ms = 1000;
          pollfd signal{.fd = interrupt.wake_fd(), .events = POLLIN, .revents = 0};
          while (!stop.stop_requested() && interrupt.requested() == 0)
            (void)::poll(&signal, 1, kLook_ms);
          for (int waited_ms = 0; waited_ms < kGrace_ms; waited_ms += kLook_ms) {
            if (stop.stop_requested()) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(kLook_ms));
          }
          if (stop.stop_requested()) return;
          if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\n");  // behind the status line
          log::info(
              "interrupted while choosing kernels: those that are chosen are kept, and "
              "another run goes on from there");
          end_by(interrupt.requested());
        }) {}

  /// As if nobody had listened.
  static void end_by(int signal) {
    (void)std::signal(signal, SIG_DFL);
    (void)::kill(::getpid(), signal);
  }

 private:
  std::jthread thread_;
};

trials::TuningPlan plan_of(const CardTuning& tuning) {
  return value_or_throw(
      trials::tuning_plan(tuning.config, tuning.tp_size, tuning.buckets, tuning.card.limits));
}

/// What a signal ends besides the tuning.
enum class SignalEnds { tuning, program };

CardTuned run_tuning(const CardTuning& tuning, trials::TuningPlan plan, jit::KernelStore& kernels,
                     TuningStore& records, SignalEnds ends) {
  const InterruptGuard interrupt;
  std::optional<EndSoon> end_soon;
  if (ends == SignalEnds::program) end_soon.emplace(interrupt);
  Progress progress(Progress::standard_error());
  ChildBench bench({.worker_command = trial_worker_command({.cache = tuning.cache,
                                                            .config_json = tuning.config_json,
                                                            .tp_size = tuning.tp_size,
                                                            .devices = tuning.devices,
                                                            .jobs = tuning.jobs,
                                                            .buckets = tuning.buckets}),
                    // A bucket's default kernels may have to be compiled first.
                    .enter_timeout = std::chrono::minutes(10)});
  SingleRank alone;
  const double start_s = steady_s();
  TuneOptions options{.device = tuning.card.device,
                      .tp_size = tuning.tp_size,
                      .policy = policy_text(SearchPolicy{}, MeasurePolicy{}),
                      .budget_s = tuning.budget_s,
                      .jobs = tuning.jobs,
                      .retune = tuning.retune,
                      .now_s = steady_s,
                      .asked_to_end = [&] { return interrupt.requested() != 0; }};
  options.progress = [&](const TuneProgress& at) {
    if (!progress.due()) return;
    const double spent_s = steady_s() - start_s;
    progress.show(fmt::format(
        "tuning {} of {}: {}, {} of {} candidates left; {:.0f} s{}; {}", at.request + 1,
        at.requests, at.step, at.candidates_left, at.candidates, spent_s,
        std::isfinite(tuning.budget_s) ? fmt::format(" of {:.0f}", tuning.budget_s) : std::string(),
        at.title));
  };
  std::vector<TuningRequest> requests = plan.requests;
  if (static_cast<int>(tuning.devices.size()) == tuning.tp_size)
    requests.insert(requests.end(), plan.collectives.begin(), plan.collectives.end());
  CardTuned tuned{
      .report = tune(requests, kernels, bench, records, alone, options), .plan = {}, .signal = 0};
  tuned.plan = std::move(plan);
  tuned.report.seconds = steady_s() - start_s;
  tuned.signal = interrupt.requested();
  return tuned;
}

}  // namespace

CardTuned tune_card(const CardTuning& tuning, jit::KernelStore& kernels, TuningStore& records) {
  return run_tuning(tuning, plan_of(tuning), kernels, records, SignalEnds::tuning);
}

void tune_first_run(const CardTuning& tuning, jit::KernelStore& kernels, TuningStore& records) {
  if (tuning.cache.frozen || tuning.budget_s <= 0) return;
  // Whether anything was ever tuned shows in the first bucket, whose kernels come first.
  CardTuning first = tuning;
  first.buckets.resize(std::min<std::size_t>(first.buckets.size(), 1));
  const TuningScope scope{.device = tuning.card.device,
                          .tp_size = tuning.tp_size,
                          .policy = policy_text(SearchPolicy{}, MeasurePolicy{})};
  const LookUp known =
      value_or_throw(look_up(plan_of(first).requests, scope, kernels, records, {}));
  if (known.with_choice == 0) return;
  if (known.tuned > 0) {
    if (const std::string line = known.missing_line(); !line.empty()) log::info("{}", line);
    return;
  }
  log::info(
      "the first run with this model on {}: choosing kernels for it, at most {:.0f} s "
      "(tuning.budget)",
      tuning.card.device.name, tuning.budget_s);
  const CardTuned tuned =
      run_tuning(tuning, plan_of(tuning), kernels, records, SignalEnds::program);
  const TuneReport& report = tuned.report;
  if (tuned.signal != 0) {
    log::info("{}; another run goes on from there", report.coverage());
    EndSoon::end_by(tuned.signal);  // what was asked for has not begun
  }
  const int left = report.count(TuneState::left) + report.count(TuneState::cut_short);
  log::info(
      "{} in {:.0f} s{}", report.coverage(), report.seconds,
      left > 0 ? "; the others run with their defaults until `ingot prewarm` tunes them" : "");
}

Result<std::vector<int>> ordinals_of(const Card& card, const KernelCacheOptions& options,
                                     int ranks) {
  const auto driver = cu::DriverApi::open(library_search_path(options.library_dirs));
  if (!driver) return Unexpected(driver.error());
  std::vector<int> found;
  for (const cu::DeviceInfo& info : cu::list_devices(**driver)) {
    const auto other = card_of(**driver, info);
    if (other && other->device == card.device && other->limits == card.limits)
      found.push_back(info.ordinal);
  }
  if (found.empty())
    return fail(ErrorCode::not_found,
                fmt::format("this machine shows no {} any more", card.device.name));
  found.resize(static_cast<int>(found.size()) < ranks ? 1 : static_cast<std::size_t>(ranks));
  return found;
}

}  // namespace ingot
