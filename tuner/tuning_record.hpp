#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/variant.hpp"
#include "tuner/tuning_key.hpp"

namespace ingot {

/// How a candidate came out of a tuning.
enum class Standing {
  chosen,
  tie,         ///< another tuning of this card might choose it
  slower,      ///< measured to the end
  dropped,     ///< left behind after a round
  barred,      ///< wrong, or it does not compile, spills, faults or hangs
  unmeasured,  ///< the budget ended before it had a time
};
std::string_view standing_name(Standing standing);

struct CandidateRecord {
  jit::Variant variant;
  Standing standing = Standing::unmeasured;
  std::string reason;              ///< of a bar; which round dropped it
  double time_us = 0;              ///< minimum; with several ranks the slowest rank's; 0: none
  double median_us = 0;            ///< of this rank's samples
  double spread = 0;               ///< of this rank's samples: (90th - 10th percentile) / median
  std::vector<double> samples_us;  ///< of this rank, in order

  bool operator==(const CandidateRecord&) const = default;
};

/// What one tuning found out: the choice, every candidate's times, and why the others lost.
struct TuningRecord {
  TuningKey key;
  bool complete = true;  ///< false: the budget ended the search; it may be tuned again
  double noise = 0;      ///< share within which times are ties
  std::vector<CandidateRecord> candidates;  ///< in the order of the request
  std::map<std::string, int> rejections;    ///< candidates by the rule that rejected them

  const CandidateRecord& chosen() const;
  /// Default's time over the choice's; 1 where one of them has no time.
  double gain() const;

  bool operator==(const TuningRecord&) const = default;
};

/// One small JSON object on a line: its digest, then the record. Readable with any JSON tool.
std::string encode_record(const TuningRecord& record);

/// Errors: corrupt (damaged anywhere, cut off, not exactly one choice), unsupported (another
/// schema: of another ingot). `origin` is for messages.
[[nodiscard]] Result<TuningRecord> decode_record(std::string_view bytes, std::string_view origin);

}  // namespace ingot
