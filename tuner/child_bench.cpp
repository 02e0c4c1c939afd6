#include "tuner/child_bench.hpp"

#include <fmt/format.h>

#include <limits>

namespace ingot {
namespace {

/// How often a trial is repeated whose process was killed from outside.
constexpr int kAttempts = 2;

}  // namespace

ChildBench::ChildBench(Options options)
    : options_(std::move(options)),
      process_({.command = options_.worker_command,
                // Every candidate may take its child with it.
                .most_lost = std::numeric_limits<int>::max()}) {}

Trial ChildBench::ask(const TrialJob& job, std::chrono::milliseconds timeout) {
  const auto answer = process_.ask(encode_trial_job(job), timeout);
  if (answer) {
    auto trial = decode_trial(*answer);
    if (trial) return std::move(*trial);
    return {.end = Trial::End::lost, .reason = trial.error().message};
  }
  using Loss = ChildProcess::Loss;
  const Loss loss = process_.last_loss();
  return {.end = loss == Loss::hung    ? Trial::End::hung
                 : loss == Loss::ended ? Trial::End::faulted
                                       : Trial::End::lost,
          .reason = answer.error().message};
}

Trial ChildBench::enter(const TuningRequest& request, const TrialKernel& reference) {
  entered_ = {.what = TrialJob::What::enter,
              .families = request.families(),
              .problem = request.problem,
              .kernel = reference};
  Trial trial;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    trial = ask(entered_, options_.enter_timeout);
    if (trial.end != Trial::End::lost) break;
  }
  return trial;
}

Trial ChildBench::run(TrialJob::What what, const TrialKernel& kernel) {
  Trial trial;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (!process_.is_running()) {
      const Trial again = ask(entered_, options_.enter_timeout);
      if (!again.is_good()) {
        // Nothing is known of the candidate: it was not even begun.
        trial = {.end = Trial::End::lost,
                 .reason = fmt::format("entering the request again: {}", again.reason)};
        continue;
      }
    }
    trial = ask({.what = what, .kernel = kernel}, options_.trial_timeout);
    if (trial.end != Trial::End::lost) break;
  }
  return trial;
}

Trial ChildBench::verify(const TrialKernel& kernel) {
  return run(TrialJob::What::verify, kernel);
}

Trial ChildBench::measure(const TrialKernel& kernel) {
  return run(TrialJob::What::measure, kernel);
}

}  // namespace ingot
