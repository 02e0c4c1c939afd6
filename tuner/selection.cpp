#include "tuner/selection.hpp"

#include <algorithm>

namespace ingot {
namespace {

/// The record's entry for a candidate; null where it has none.
const CandidateRecord* find(const TuningRecord& record, const jit::Variant& variant) {
  for (const CandidateRecord& candidate : record.candidates) {
    if (candidate.variant == variant) return &candidate;
  }
  return nullptr;
}

}  // namespace

std::string_view source_name(Selection::Source source) {
  switch (source) {
    case Selection::Source::no_choice:
      return "no choice";
    case Selection::Source::tuned:
      return "tuned";
    case Selection::Source::cut_short:
      return "tuned, cut short";
    case Selection::Source::fallback:
      return "default";
  }
  return "default";
}

Selection select(const TuningRequest& request, std::span<const std::size_t> allowed,
                 const std::optional<TuningRecord>& record) {
  Selection selection{.candidate = allowed.front(),
                      .source = Selection::Source::fallback,
                      .forced = allowed.size() < request.candidates.size()};
  if (request.candidates.size() == 1) selection.source = Selection::Source::no_choice;
  if (!record || !request.has_candidate(record->chosen().variant)) return selection;
  const CandidateRecord* best = nullptr;
  for (const std::size_t index : allowed) {
    const CandidateRecord* found = find(*record, request.candidates[index]);
    if (found == nullptr || found->standing == Standing::barred || found->time_us <= 0) continue;
    const bool chosen = found->standing == Standing::chosen;
    if (best != nullptr && !chosen && found->time_us >= best->time_us) continue;
    best = found;
    selection.candidate = index;
    if (chosen) break;
  }
  if (best != nullptr) {
    selection.source = record->complete ? Selection::Source::tuned : Selection::Source::cut_short;
  }
  return selection;
}

}  // namespace ingot
