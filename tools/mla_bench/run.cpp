#include "tools/mla_bench/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tools/mla_bench/cells.hpp"

namespace ingot::bench {
namespace {

constexpr std::size_t kLayouts = 2;
constexpr std::size_t kFinalists = 3, kOtherFinalists = 2;

/// How many candidates of a cell are measured at all: the telling cells decide the targets, those
/// of other batches lie between them.
std::size_t most_screened(std::size_t cell) {
  constexpr std::size_t kTelling = 56, kOtherBatches = 14, kOtherKeys = 8;
  return cell < kTellingCells ? kTelling : cell < 2 * kTellingCells ? kOtherBatches : kOtherKeys;
}

}  // namespace

MlaRun::MlaRun(const Settings& settings)
    : settings_(settings), results_(settings.out), child_(settings.child) {
  limits_ = value_or_throw(cu::limits_of_arch(settings.arch));
  for (const MlaCell& cell : cells_)
    for (std::size_t layout = 0; layout < kLayouts; ++layout)
      candidates_.push_back(mla_candidates(cell, static_cast<int>(layout), limits_));
}

const std::vector<MlaCandidate>& MlaRun::candidates_of(std::size_t cell, int layout) const {
  return candidates_[cell * kLayouts + static_cast<std::size_t>(layout)];
}
double MlaRun::elapsed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}
bool MlaRun::wanted(std::size_t cell) const {
  return cells_[cell].name().find(settings_.only) != std::string::npos;
}

bool MlaRun::all() {
  std::filesystem::remove(settings_.out);
  std::vector<jit::Variant> needed = fixed_variants(limits_);
  for (std::size_t cell = 0; cell < cells_.size(); ++cell)
    if (wanted(cell))
      for (const MlaCandidate& candidate : candidates_of(cell, 0))
        needed.push_back(candidate.variant);
  settings_.prepare(needed);
  if (!measure_card()) return false;
  print_mla_head(results_);
  for (std::size_t cell = 0; cell < cells_.size() && !time_is_up(); ++cell) {
    if (wanted(cell)) measure_cell(cell);
    if (cell + 1 == kTellingCells) compare_layouts(kTellingCells);
  }
  const auto wrong = std::count_if(rows_.begin(), rows_.end(),
                                   [](const MlaRow& row) { return !row.error.empty(); });
  fmt::print("{} measurements, {} of them wrong or failed; {} processes lost; {:.0f} s{}\n",
             rows_.size(), wrong, child_.lost(), elapsed_s(), time_is_up() ? ", cut off" : "");
  return !rows_.empty() && wrong == 0;
}

bool MlaRun::measure_card() {
  const auto answer = child_.ask(encode(MlaQuestion{.kind = MlaQuestion::Kind::card}));
  if (!answer) {
    fmt::print(stderr, "mla_bench: measuring the card: {}\n", answer.error().message);
    return false;
  }
  results_.add(decode_card(*answer));
  fmt::print(stderr, "mla_bench: card measured after {:.1f} s\n", elapsed_s());
  return true;
}

void MlaRun::measure_cell(std::size_t cell) {
  const double from = elapsed_s();
  const auto simt = child_.ask(encode(MlaQuestion{.kind = MlaQuestion::Kind::simt, .cell = cell}));
  if (simt) {
    results_.add_simt(cell, decode_us(*simt));
  } else {
    fmt::print(stderr, "{}: per-head kernel: {}\n", cells_[cell].name(), simt.error().message);
    gave_up_ = simt.error().code == ErrorCode::io;
  }
  const auto chosen = screened(cell);
  for (const std::size_t candidate : chosen)
    if (!time_is_up()) measure({cell, 0, candidate}, false);
  const double between = elapsed_s();
  for (const Item& item : finalists(cell))
    if (!time_is_up()) measure(item, true);
  auto best = good_rows(cell, "final");
  for (std::size_t i = 0; i < best.size() && i < kFinalists; ++i)
    winners_.emplace(cells_[cell].heads,
                     jit::describe(candidates_of(cell, 0)[best[i].candidate].variant));
  print_mla_cell(results_, cell, cells_[cell]);
  fmt::print(stderr, "{}: {} of {} candidates in {:.1f} s, finals {:.1f} s, at {:.0f} s\n",
             cells_[cell].name(), chosen.size(), candidates_of(cell, 0).size(), between - from,
             elapsed_s() - between, elapsed_s());
}

void MlaRun::compare_layouts(std::size_t cells) {
  std::vector<Item> items;
  std::vector<jit::Variant> variants;
  for (int layout = 1; layout < static_cast<int>(kLayouts); ++layout)
    for (std::size_t cell = 0; cell < cells; ++cell) {
      const auto best = good_rows(cell, "final");
      if (best.empty()) continue;
      // Candidates have the same places in every layout.
      items.push_back({cell, layout, best.front().candidate});
      variants.push_back(candidates_of(cell, layout)[best.front().candidate].variant);
    }
  if (items.empty() || time_is_up()) return;
  settings_.prepare(variants);
  for (const Item& item : items)
    if (!time_is_up()) measure(item, true);
  fmt::print("best candidate by layout, us plain / early:\n");
  for (std::size_t cell = 0; cell < cells; ++cell) {
    const auto best = good_rows(cell, "final");
    if (best.empty()) continue;
    std::string line = cells_[cell].name();
    for (const MlaRow& row : rows_)
      if (row.cell == cell && row.stage == "final" && row.error.empty() &&
          row.candidate == best.front().candidate)
        line += fmt::format(" | {} {:.2f} / {:.2f}",
                            mla_layouts()[static_cast<std::size_t>(row.layout)].name, row.us,
                            row.early_us);
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}

void MlaRun::measure(const Item& item, bool thoroughly) {
  const MlaCandidate& candidate = candidates_of(item.cell, item.layout)[item.candidate];
  MlaRow row{.stage = thoroughly ? "final" : "screen",
             .cell = item.cell,
             .layout = item.layout,
             .candidate = item.candidate,
             .is_default = candidate.is_default && item.layout == 0,
             .brief = candidate.brief(),
             .error = {}};
  const auto answer = child_.ask(encode(MlaQuestion{.kind = MlaQuestion::Kind::candidate,
                                                    .cell = item.cell,
                                                    .layout = item.layout,
                                                    .candidate = item.candidate,
                                                    .thoroughly = thoroughly}));
  if (answer) {
    const MlaOutcome outcome = decode_outcome(*answer);
    row.error = outcome.error;
    row.relative_error = outcome.relative_error;
    row.us = outcome.timing.median_us;
    row.min_us = outcome.timing.min_us;
    row.spread = outcome.timing.spread;
    if (outcome.early) row.early_us = outcome.early->median_us;
  } else {
    if (answer.error().code == ErrorCode::io) {  // never asked: says nothing about the candidate
      gave_up_ = true;
      fmt::print(stderr, "mla_bench: {}\n", answer.error().message);
      return;
    }
    row.error = answer.error().message;
  }
  if (!row.error.empty())
    fmt::print(stderr, "{} {}: {}\n", cells_[item.cell].name(), row.brief, row.error);
  results_.add(row, cells_[item.cell], candidate);
  rows_.push_back(std::move(row));
}

/// The default, winners of earlier cells with as many heads, then a sample of the rest, or all.
std::vector<std::size_t> MlaRun::screened(std::size_t cell) const {
  const auto& all = candidates_of(cell, 0);
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool won = winners_.contains({cells_[cell].heads, jit::describe(all[i].variant)});
    // A sample that no axis is in step with.
    const std::uint64_t lot = 2 + (static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ULL >> 8);
    order.emplace_back(all[i].is_default ? 0 : won ? 1 : lot, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> chosen;
  const std::size_t most = settings_.all ? order.size() : most_screened(cell);
  for (std::size_t i = 0; i < order.size() && i < most; ++i)
    chosen.push_back(order[i].second);
  return chosen;
}

std::vector<MlaRow> MlaRun::good_rows(std::size_t cell, std::string_view stage) const {
  std::vector<MlaRow> rows;
  for (const MlaRow& row : rows_)
    if (row.cell == cell && row.stage == stage && row.layout == 0 && row.error.empty())
      rows.push_back(row);
  std::sort(rows.begin(), rows.end(), [](const MlaRow& a, const MlaRow& b) { return a.us < b.us; });
  return rows;
}

/// The fastest, the fastest of the other family in a telling cell, the default.
std::vector<MlaRun::Item> MlaRun::finalists(std::size_t cell) const {
  const bool telling = cell < kTellingCells;
  std::map<std::string, int> families;
  std::vector<Item> items;
  std::size_t place = 0;
  for (const MlaRow& row : good_rows(cell, "screen")) {
    const int before = families[candidates_of(cell, 0)[row.candidate].variant.family]++;
    if (place < (telling ? kFinalists : kOtherFinalists) || (telling && before == 0) ||
        row.is_default)
      items.push_back({cell, 0, row.candidate});
    ++place;
  }
  return items;
}

}  // namespace ingot::bench
