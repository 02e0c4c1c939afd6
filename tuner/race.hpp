#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "runtime/jit/kernel_store.hpp"
#include "tuner/rank_agreement.hpp"
#include "tuner/search.hpp"
#include "tuner/trial.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot {

struct RaceSetup {
  const TuningRequest& request;
  std::string arch;
  SearchPolicy search;
  std::function<double()> now_s;
  double end_s = 0;  ///< of now_s; when the budget ends
  /// Called before each step with its name and how many candidates are left in it.
  std::function<void(std::string_view step, std::size_t left)> progress;
};

struct Race {
  RaceResult result;
  std::vector<std::vector<double>> samples_us;  ///< by candidate
};

/// The tuning of one request on one rank: compiles its candidates, verifies and measures them.
/// Decides nothing and keeps no records. Candidates that are to blame for their failure are barred
/// in `kernels` and warned of.
Race run_race(const RaceSetup& setup, jit::KernelStore& kernels, Bench& bench);

}  // namespace ingot
