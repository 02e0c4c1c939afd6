#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tuner/tuning_record.hpp"

namespace ingot {

/// A kernel for which two tunings on one card chose differently.
struct ChangedChoice {
  std::string title;
  std::string before, after;  ///< jit::describe
  bool tie = false;           ///< one of the records lists the other's choice as a tie
  double ratio = 1;           ///< time of the choice after over that of the one before, both as the
                              ///< record after has them
};

/// nullopt where both chose the same. Pure.
std::optional<ChangedChoice> compare_choices(const TuningRecord& before, const TuningRecord& after);

/// The time of a step's launches with the choices of one tuning over that with those of another,
/// each kernel timed as the record after has it: minima of samples that were taken side by side. 1
/// where there is nothing to compare. Pure.
struct LaunchedTunings {
  const TuningRecord* before = nullptr;
  const TuningRecord* after = nullptr;
  int launches = 1;
};
double step_ratio(std::span<const LaunchedTunings> step);

}  // namespace ingot
