#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "tuner/tuning_record.hpp"
#include "tuner/tuning_request.hpp"

namespace ingot {

/// Which candidate of a request runs, and why.
struct Selection {
  enum class Source {
    no_choice,  ///< there is one candidate
    tuned,
    cut_short,  ///< tuned, but its budget ended first
    fallback,   ///< not tuned: the first that is allowed, which is the default where all are
  };
  std::size_t candidate = 0;
  Source source = Source::fallback;
  bool forced = false;  ///< the user's pins or disabled families left some out
};

/// "tuned", "default" …
std::string_view source_name(Selection::Source source);

/// Looks a request up. Of the allowed candidates the record's choice, or where that is not allowed
/// the fastest that the record has and does not bar. A record whose choice is not legal (no
/// candidate of the request) counts as missing. Never tunes. Pure.
/// @param allowed  indices of candidates, ascending, not empty
Selection select(const TuningRequest& request, std::span<const std::size_t> allowed,
                 const std::optional<TuningRecord>& record);

}  // namespace ingot
