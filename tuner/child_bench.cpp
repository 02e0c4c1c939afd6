#include "tuner/child_bench.hpp"

#include <fmt/format.h>

namespace ingot {
namespace {

/// How often a trial is repeated whose process was killed from outside.
constexpr int kAttempts = 2;

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
    text.pop_back();
  const std::size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

}  // namespace

Trial ChildBench::ended() {
  const Subprocess::End end = child_->wait();
  const std::string said = last_line(child_->output_tail());
  child_.reset();
  const std::string how = fmt::format("the measuring process ended: {}{}{}", end.describe(),
                                      said.empty() ? "" : "; it said: ", said);
  if (end.was_killed()) return {.end = Trial::End::lost, .reason = how};
  ++stats_.faults;
  return {.end = Trial::End::faulted, .reason = how};
}

Trial ChildBench::ask(const TrialJob& job, std::chrono::milliseconds timeout) {
  if (!child_) {
    auto started = Subprocess::spawn(options_.worker_command);
    if (!started) return {.end = Trial::End::lost, .reason = started.error().message};
    child_.emplace(std::move(*started));
    ++stats_.started;
  }
  std::string frame;
  if (!write_frame(child_->channel(), encode_trial_job(job))) return ended();
  switch (read_frame(child_->channel(), frame, timeout)) {
    case FrameStatus::closed:
      return ended();
    case FrameStatus::timed_out:
      child_.reset();  // killed and reaped
      ++stats_.hangs;
      return {.end = Trial::End::hung,
              .reason = fmt::format("it did not end within {:.3g} s",
                                    std::chrono::duration<double>(timeout).count())};
    case FrameStatus::ok:
      break;
  }
  auto reply = decode_trial_reply(frame);
  if (!reply) {
    child_.reset();
    return {.end = Trial::End::lost, .reason = reply.error().message};
  }
  if (reply->ends) {
    child_.reset();
    ++stats_.faults;
  }
  return std::move(reply->trial);
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
    if (!child_) {
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
