#include "tuner/family_gains.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ingot {
namespace {

std::string families_of(const TuningRecord& record) {
  std::string text;
  for (const auto& family : record.key.families)
    text += (text.empty() ? "" : "+") + family.stem;
  return text;
}

void add_candidate(FamilyGains& row, const CandidateRecord& candidate) {
  ++row.candidates;
  row.ties += candidate.standing == Standing::tie ? 1 : 0;
  row.dropped += candidate.standing == Standing::dropped ? 1 : 0;
  if (candidate.standing != Standing::barred) return;
  ++row.barred;
  // Up to where it becomes about this candidate alone.
  const std::size_t end = std::min(candidate.reason.find(':'), candidate.reason.find(" ("));
  ++row.reasons["barred: " + candidate.reason.substr(0, end)];
}

}  // namespace

std::vector<FamilyGains> family_gains(std::span<const TuningRecord> records) {
  std::vector<FamilyGains> rows;
  for (const TuningRecord& record : records) {
    const std::string families = families_of(record);
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const FamilyGains& each) { return each.families == families; });
    if (row == rows.end()) {
      rows.emplace_back().families = families;
      row = rows.end() - 1;
    }
    const double gain = record.gain();
    // The mean of the logarithms, one request at a time.
    row->gain =
        std::exp((std::log(row->gain) * row->requests + std::log(gain)) / (row->requests + 1));
    ++row->requests;
    row->best_gain = std::max(row->best_gain, gain);
    row->spread = std::max(row->spread, record.chosen().spread);
    row->changed += &record.chosen() == &record.candidates.front() ? 0 : 1;
    for (const CandidateRecord& candidate : record.candidates)
      add_candidate(*row, candidate);
    for (const auto& [rule, count] : record.rejections)
      row->reasons[rule] += count;
  }
  return rows;
}

std::string gains_table(std::span<const FamilyGains> rows) {
  std::string text = fmt::format("{:<40} {:>7} {:>7} {:>6} {:>6} {:>7} {:>10} {:>5} {:>7} {:>6}\n",
                                 "families", "kernels", "changed", "gain", "best", "spread",
                                 "candidates", "ties", "dropped", "barred");
  for (const FamilyGains& row : rows) {
    text += fmt::format("{:<40} {:>7} {:>7} {:>6.2f} {:>6.2f} {:>6.1f}% {:>10} {:>5} {:>7} {:>6}\n",
                        row.families, row.requests, row.changed, row.gain, row.best_gain,
                        100 * row.spread, row.candidates, row.ties, row.dropped, row.barred);
    for (const auto& [reason, count] : row.reasons)
      text += fmt::format("  {:>6} {}\n", count, reason);
  }
  return text;
}

}  // namespace ingot
