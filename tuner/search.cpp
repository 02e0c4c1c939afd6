#include "tuner/search.hpp"

#include <algorithm>
#include <cmath>

#include "tuner/measure.hpp"

namespace ingot {
namespace {

/// Once every candidate has its least number of samples, one that is further behind than this many
/// times the noise is not waited for.
constexpr double kHopeless = 4;

double fastest(std::span<const Course> courses) {
  double best = 0;
  for (const Course& course : courses) {
    if (!course.is_racing() || course.samples_us.empty()) continue;
    if (best == 0 || course.best_us() < best) best = course.best_us();
  }
  return best;
}

}  // namespace

double Course::best_us() const {
  return *std::min_element(samples_us.begin(), samples_us.end());
}

double noise_of(std::span<const Course> courses) {
  std::vector<double> each;
  for (const Course& course : courses) {
    if (!course.is_racing() || course.samples_us.size() < 2) continue;
    each.push_back(summarize(course.samples_us, 1).spread /
                   std::sqrt(static_cast<double>(course.samples_us.size())));
  }
  if (each.empty()) return kLeastNoise;
  const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
  std::nth_element(each.begin(), middle, each.end());
  return std::max(*middle, kLeastNoise);
}

Search::Search(std::size_t candidates, SearchPolicy policy, double budget_s)
    : policy_(policy), budget_left_s_(budget_s), courses_(candidates) {
  done_ = candidates == 0;
  if (!done_) spend(0);
}

std::optional<std::size_t> Search::next() const {
  if (done_) return std::nullopt;
  return at_;
}

void Search::add(double time_us, double cost_s) {
  courses_[at_].samples_us.push_back(time_us);
  advance();
  spend(cost_s);
}

void Search::bar(double cost_s) {
  courses_[at_].barred = true;
  advance();
  spend(cost_s);
}

void Search::spend(double cost_s) {
  budget_left_s_ -= cost_s;
  if (budget_left_s_ <= 0) end();
}

void Search::end() {
  if (done_) return;
  done_ = true;
  out_of_budget_ = true;
}

void Search::advance() {
  do {
    ++at_;
  } while (at_ < courses_.size() && !courses_[at_].is_racing());
  if (at_ == courses_.size()) end_round();
}

void Search::end_round() {
  ++rounds_;
  const double best = fastest(courses_);
  double limit = best * (1 + policy_.drop_behind);
  if (rounds_ >= policy_.min_rounds) {
    limit = std::min(limit, best * (1 + kHopeless * noise_of(courses_)));
  }
  for (Course& course : courses_) {
    if (course.is_racing() && course.best_us() > limit) course.dropped_after = rounds_;
  }
  done_ =
      best == 0 || rounds_ >= policy_.max_rounds || (rounds_ >= policy_.min_rounds && is_decided());
  at_ = 0;
  while (!done_ && !courses_[at_].is_racing())
    ++at_;
}

bool Search::is_decided() const {
  return std::count_if(courses_.begin(), courses_.end(),
                       [](const Course& course) { return course.is_racing(); }) == 1;
}

}  // namespace ingot
