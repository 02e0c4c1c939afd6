#pragma once

#include <string>

#include "tuner/tuning_request.hpp"
#include "tuner/verify.hpp"

namespace ingot {

/// How one trial of a candidate ended.
struct Trial {
  enum class End {
    good,
    wrong,    ///< it disagrees with the reference
    refused,  ///< the card cannot launch it
    faulted,  ///< it took the process or its context down
    hung,     ///< it did not end in time
    lost,     ///< nothing is known of it: the process was killed from outside, or cannot start
  };
  End end = End::good;
  std::string reason;  ///< a sentence; empty when it is good
  double time_us = 0;  ///< of measure()

  bool is_good() const { return end == End::good; }
  /// Whether the candidate is to blame, and must not be tried again.
  bool bars() const { return end != End::good && end != End::lost; }
};

/// Tries candidates, so that one that hangs or faults costs only itself. One thread.
class Bench {
 public:
  virtual ~Bench() = default;

  /// The request that the next calls are about, with its reference variant. Anything but good: it
  /// cannot be tuned.
  virtual Trial enter(const TuningRequest& request, const TrialKernel& reference) = 0;
  /// Whether a candidate agrees with the reference on every edge case.
  virtual Trial verify(const TrialKernel& kernel) = 0;
  /// One sample of its time.
  virtual Trial measure(const TrialKernel& kernel) = 0;
};

}  // namespace ingot
