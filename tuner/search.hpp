#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

struct SearchPolicy {
  int min_rounds = 3;         ///< of every candidate that is not dropped
  int max_rounds = 10;        ///< enough, however close the race
  double drop_behind = 0.25;  ///< after a round: slower than the best by more than this share

  bool operator==(const SearchPolicy&) const = default;
};

/// What is known of one candidate.
struct Course {
  std::vector<double> samples_us;
  int dropped_after = 0;  ///< the round behind which it was left; 0: it was not
  bool barred = false;

  /// The minimum: what disturbs a measurement makes it longer. `samples_us` is not empty.
  double best_us() const;
  bool is_racing() const { return !barred && dropped_after == 0; }
};

/// How uncertain the minima of a race are, as a share: the median over the candidates that are
/// still racing of the samples' spread, over the square root of their number; never less than
/// kLeastNoise. Pure.
double noise_of(std::span<const Course> courses);

/// Half a percent: what separates two measurements of one kernel on an idle card.
inline constexpr double kLeastNoise = 0.005;

/// Decides which candidate of a race is measured next. A pure state machine: it is fed with times,
/// has no clock and does no input or output; equal times make equal decisions. All candidates that
/// are racing are measured once each round, so that a drift of the clock meets them alike.
class Search {
 public:
  /// @param budget_s  seconds that measuring may cost, as add() is told; 0 measures nothing
  Search(std::size_t candidates, SearchPolicy policy, double budget_s);

  /// Whom to measure; nullopt when the race is over.
  std::optional<std::size_t> next() const;
  /// The time of the candidate that next() named, positive, and what getting it has cost.
  void add(double time_us, double cost_s);
  /// The candidate that next() named cannot be measured; it is out.
  void bar(double cost_s);
  /// Ends it as a spent budget does.
  void end();

  const std::vector<Course>& courses() const { return courses_; }
  int rounds() const { return rounds_; }
  /// Over, and not because of the budget.
  bool complete() const { return done_ && !out_of_budget_; }
  bool out_of_budget() const { return out_of_budget_; }

 private:
  void spend(double cost_s);
  void advance();
  void end_round();
  bool is_decided() const;

  SearchPolicy policy_;
  double budget_left_s_;
  std::vector<Course> courses_;
  std::size_t at_ = 0;
  int rounds_ = 0;
  bool done_ = false;
  bool out_of_budget_ = false;
};

}  // namespace ingot
