#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

struct Choice {
  std::size_t chosen = 0;
  /// Whom another tuning of the same card might choose, `chosen` among them, in the fixed order.
  std::vector<std::size_t> ties;
};

/// Picks one of the candidates that have a time: of those within `noise` of the fastest the first
/// in the order given, which is the space's, so that chance does not decide. Those within
/// kTieWindow times the noise are listed as ties: two tunings err by up to the noise each, in
/// either direction. Pure. nullopt where no candidate has a time.
/// @param times_us  one for each candidate; nullopt: out of the race
/// @param noise     uncertainty of a time, as a share of it
std::optional<Choice> choose(std::span<const std::optional<double>> times_us, double noise);

inline constexpr double kTieWindow = 3;

}  // namespace ingot
