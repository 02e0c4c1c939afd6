#include "src/cli/numeric_report.hpp"

#include "runtime/base/log.hpp"

namespace ingot {

void report_numeric_faults(const Engine& engine) {
  const NumericFaults faults = engine.numeric_faults();
  if (faults.nan_rows == 0 && faults.nan_scores == 0) return;
  log::warn(
      "NaN came up while the model ran, in {} rows of logits and {} index scores: the weights, or "
      "the engine, are damaged; `ingot inspect --hash` checks the weights",
      faults.nan_rows, faults.nan_scores);
}

}  // namespace ingot
