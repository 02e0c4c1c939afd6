#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/subprocess.hpp"
#include "tuner/trial.hpp"
#include "tuner/trial_worker.hpp"

namespace ingot {

/// A bench in a child process, which is started when it is first needed and again after every
/// candidate that took it down: the next one finds the request entered.
class ChildBench : public Bench {
 public:
  struct Options {
    std::vector<std::string> worker_command;  ///< a program that ends in serve_trials()
    /// Making inputs and running the reference.
    std::chrono::milliseconds enter_timeout = std::chrono::minutes(2);
    /// One verification or one sample: both are far below a second where nothing hangs.
    std::chrono::milliseconds trial_timeout = std::chrono::seconds(20);
  };
  struct Stats {
    int started = 0;  ///< children
    int faults = 0;
    int hangs = 0;
  };

  explicit ChildBench(Options options) : options_(std::move(options)) {}

  Trial enter(const TuningRequest& request, const TrialKernel& reference) override;
  Trial verify(const TrialKernel& kernel) override;
  Trial measure(const TrialKernel& kernel) override;

  const Stats& stats() const { return stats_; }

 private:
  /// A job to a child that has entered the request.
  Trial run(TrialJob::What what, const TrialKernel& kernel);
  /// One job to the child that is there, or to a new one.
  Trial ask(const TrialJob& job, std::chrono::milliseconds timeout);
  /// The child is gone: why.
  Trial ended();

  const Options options_;
  std::optional<Subprocess> child_;
  TrialJob entered_;
  Stats stats_;
};

}  // namespace ingot
