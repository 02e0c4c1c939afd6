#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/jit/kernel_store.hpp"
#include "tuner/measure.hpp"
#include "tuner/race.hpp"
#include "tuner/rank_agreement.hpp"
#include "tuner/search.hpp"
#include "tuner/trial.hpp"
#include "tuner/tuning_store.hpp"

namespace ingot {

/// How candidates are measured and searched, as a line of the tuning key.
std::string policy_text(const SearchPolicy& search, const MeasurePolicy& measure);

/// How one request came out of tune().
enum class TuneState {
  no_choice,  ///< it has one candidate
  known,      ///< a complete record was there
  tuned,      ///< now
  cut_short,  ///< now, until the budget ended; the best so far is chosen, and may be tuned again
  left,       ///< not begun, or no candidate was measured before the budget ended
  failed,     ///< the reference variant does not compile or run
};

struct TunedRequest {
  std::string title;
  TuneState state = TuneState::left;
  std::string reason = {};                  ///< of a failure
  std::optional<TuningRecord> record = {};  ///< known, tuned and cut_short
  double seconds = 0;                       ///< that this tuning took, if it did
};

struct TuneReport {
  std::vector<TunedRequest> requests;  ///< in the order given
  double seconds = 0;
  RaceSeconds spent;

  int count(TuneState state) const;
  /// "38 of 57 kernels are tuned (30 now, 8 before), 1 cut short, 15 left, 3 failed; 20 have no
  /// choice".
  std::string coverage() const;
};

struct TuneProgress {
  std::size_t request = 0;  ///< 0-based
  std::size_t requests = 0;
  std::string_view title;
  std::string_view step;  ///< "compiling", "verifying", "measuring"
  std::size_t candidates = 0;
  std::size_t candidates_left = 0;  ///< in this step
};

struct TuneOptions {
  TuningDevice device;
  int tp_size = 1;
  std::string policy;  ///< policy_text of `search` and of what the bench measures by
  SearchPolicy search = {};
  /// Seconds, compiling included; 0 tunes nothing.
  double budget_s = std::numeric_limits<double>::infinity();
  int jobs = 1;                   ///< candidates that are compiled at a time, ahead of measuring
  bool retune = false;            ///< tune what is known again
  std::function<double()> now_s;  ///< a steady clock
  /// Ends it behind the trial in work, as a spent budget does.
  std::function<bool()> asked_to_end = [] { return false; };
  std::function<void(const TuneProgress&)> progress = [](const TuneProgress&) {};
};

/// Tunes every request that has a choice and no complete record: compiles its candidates, measures
/// them in rounds, checks against the reference what is not too far behind after the first, chooses
/// and saves, one request after the other, so that whatever ends it costs the request in work
/// alone. Candidates that are wrong, hang, fault, spill or do not compile are barred in `kernels`
/// by name and not tried again; each is warned of once, but for those that spill. With several
/// ranks all of them call this with their own bench and the same requests; rank 0 decides what is
/// tuned, chooses and saves. Throws what RankGroup throws.
TuneReport tune(std::span<const TuningRequest> requests, jit::KernelStore& kernels, Bench& bench,
                TuningStore& records, RankGroup& ranks, const TuneOptions& options);

}  // namespace ingot
