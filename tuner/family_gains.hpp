#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tuner/tuning_record.hpp"

namespace ingot {

/// What tuning did for the requests of one family, or of families that compete.
struct FamilyGains {
  std::string families;  ///< "fp8_linear+fp8_linear_sm90"
  int requests = 0;
  int changed = 0;  ///< requests whose choice is not the default
  double gain = 1;  ///< geometric mean of default's time over choice's
  double best_gain = 1;
  double spread = 0;   ///< greatest of a choice's samples
  int candidates = 0;  ///< legal ones, over all requests
  int ties = 0;        ///< listed besides the choices
  int dropped = 0;
  int barred = 0;
  /// Why: by the rule that rejected candidates before they were tried, and by the reason of a bar
  /// up to its first colon or bracket.
  std::map<std::string, int> reasons;

  bool operator==(const FamilyGains&) const = default;
};

/// A row for each set of families, in the order in which they come.
std::vector<FamilyGains> family_gains(std::span<const TuningRecord> records);

/// The rows as a table for people, with a line for each reason below its row.
std::string gains_table(std::span<const FamilyGains> rows);

}  // namespace ingot
