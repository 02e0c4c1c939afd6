#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "tuner/overrides.hpp"
#include "tuner/selection.hpp"
#include "tuner/tuning_store.hpp"

namespace ingot {

/// What keys are made of besides the requests.
struct TuningScope {
  TuningDevice device;
  int tp_size = 1;
  std::string policy;  ///< policy_text()
};

/// What runs for each request of a plan.
struct LookUp {
  std::vector<Selection> selections;  ///< by request
  int with_choice = 0;                ///< requests that have more than one candidate
  int tuned = 0;                      ///< of these, those whose record served
  std::string first_missing;          ///< title of the first key without a record; empty: none

  /// "12 of 40 kernels have no tuning choice and run with their defaults, the first for rms_norm
  /// hidden=4096 rows=1 on NVIDIA H200, TP 1: `ingot prewarm` tunes them"; empty where none lacks.
  std::string missing_line() const;
};

/// Looks every request up. Never tunes. A record whose choice is no candidate any more is warned of
/// and counts as missing. Errors: those of key_of and of Overrides::allowed.
[[nodiscard]] Result<LookUp> look_up(std::span<const TuningRequest> requests,
                                     const TuningScope& scope, const jit::KernelStore& kernels,
                                     TuningStore& records, const Overrides& overrides);

}  // namespace ingot
