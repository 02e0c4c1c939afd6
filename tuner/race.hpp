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
  double end_s = 0;                                           ///< of now_s; when the budget ends
  std::function<bool()> asked_to_end = [] { return false; };  ///< then it is spent
  /// Called before each step with its name and how many candidates are left in it.
  std::function<void(std::string_view step, std::size_t left)> progress;
};

/// Where the time of a race went.
struct RaceSeconds {
  double compile = 0;  ///< waiting for candidates that were not ready
  double enter = 0;
  double verify = 0;
  double measure = 0;

  RaceSeconds& operator+=(const RaceSeconds& other) {
    compile += other.compile;
    enter += other.enter;
    verify += other.verify;
    measure += other.measure;
    return *this;
  }
};

struct Race {
  RaceResult result;
  RaceSeconds seconds;
  std::vector<std::vector<double>> samples_us;  ///< by candidate
};

/// The tuning of one request on one rank: compiles its candidates, measures each once, verifies
/// those that are not too far behind, the fastest first, and measures these in rounds. One that was
/// not verified has no time. Decides nothing and keeps no records. Candidates that are to blame for
/// their failure are barred in `kernels` and warned of.
Race run_race(const RaceSetup& setup, jit::KernelStore& kernels, Bench& bench);

}  // namespace ingot
