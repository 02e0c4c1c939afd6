#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "tuner/trial.hpp"

namespace ingot {

/// What the measuring process is asked over its channel.
struct TrialJob {
  enum class What { enter, verify, measure };
  What what = What::enter;
  std::vector<std::string> families = {};  ///< enter
  std::vector<ProblemField> problem = {};  ///< enter
  TrialKernel kernel = {};                 ///< the reference, or the candidate
};

/// Answers jobs on `channel` with `runner` until the other side closes. What the runner throws ends
/// the process: the card's context is gone. Returns the exit status.
int serve_trials(int channel, TrialRunner& runner);

// The frames between. Decoding fails (corrupt) on anything that encoding does not write.
std::string encode_trial_job(const TrialJob& job);
[[nodiscard]] Result<TrialJob> decode_trial_job(const std::string& frame);
std::string encode_trial(const Trial& trial);
[[nodiscard]] Result<Trial> decode_trial(const std::string& frame);

}  // namespace ingot
