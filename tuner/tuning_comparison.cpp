#include "tuner/tuning_comparison.hpp"

#include <algorithm>

namespace ingot {
namespace {

const CandidateRecord* find(const TuningRecord& record, const jit::Variant& variant) {
  const auto found =
      std::find_if(record.candidates.begin(), record.candidates.end(),
                   [&](const CandidateRecord& one) { return one.variant == variant; });
  return found == record.candidates.end() ? nullptr : &*found;
}

bool lists_as_tie(const TuningRecord& record, const jit::Variant& variant) {
  const CandidateRecord* const one = find(record, variant);
  return one != nullptr && one->standing == Standing::tie;
}

/// Of one that was dropped unverified there are samples all the same.
double time_us(const TuningRecord& record, const jit::Variant& variant) {
  const CandidateRecord* const one = find(record, variant);
  if (one == nullptr) return 0;
  if (one->time_us > 0 || one->samples_us.empty()) return one->time_us;
  return *std::min_element(one->samples_us.begin(), one->samples_us.end());
}

}  // namespace

std::optional<ChangedChoice> compare_choices(const TuningRecord& before,
                                             const TuningRecord& after) {
  const jit::Variant& was = before.chosen().variant;
  const jit::Variant& is = after.chosen().variant;
  if (was == is) return std::nullopt;
  const double was_us = time_us(after, was);
  return ChangedChoice{.title = after.key.title(),
                       .before = jit::describe(was),
                       .after = jit::describe(is),
                       .tie = lists_as_tie(after, was) || lists_as_tie(before, is),
                       .ratio = was_us > 0 ? time_us(after, is) / was_us : 1};
}

double step_ratio(std::span<const LaunchedTunings> step) {
  double before_us = 0, after_us = 0;
  for (const LaunchedTunings& one : step) {
    const double was = time_us(*one.after, one.before->chosen().variant);
    const double is = time_us(*one.after, one.after->chosen().variant);
    if (was <= 0 || is <= 0) continue;
    before_us += one.launches * was;
    after_us += one.launches * is;
  }
  return before_us > 0 ? after_us / before_us : 1;
}

}  // namespace ingot
