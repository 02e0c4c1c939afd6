#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tuner/child_process.hpp"
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
  explicit ChildBench(Options options);

  Trial enter(const TuningRequest& request, const TrialKernel& reference) override;
  Trial verify(const TrialKernel& kernel) override;
  Trial measure(const TrialKernel& kernel) override;

  int children_started() const { return process_.started(); }

 private:
  /// A job to a child that has entered the request.
  Trial run(TrialJob::What what, const TrialKernel& kernel);
  /// One job to the child that is there, or to a new one.
  Trial ask(const TrialJob& job, std::chrono::milliseconds timeout);

  const Options options_;
  ChildProcess process_;
  TrialJob entered_;
};

}  // namespace ingot
