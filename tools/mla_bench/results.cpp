#include "tools/mla_bench/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/kernel_bench/h200_curve.hpp"

namespace ingot::bench {
namespace {

using nlohmann::json;

constexpr double kGemmFlopsPerUs = 787e6;

std::vector<json> lines_of(const std::filesystem::path& file, std::string_view kind) {
  std::vector<json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    json parsed = json::parse(line, nullptr, false);
    if (!parsed.is_discarded() && parsed["kind"] == kind) lines.push_back(std::move(parsed));
  }
  return lines;
}

/// This run's reads over those beside which the peer was measured.
double peer_scale(const MlaCard& card) {
  double scale = 0;
  for (const ColdRead& point : card.curve)
    scale += point.us / cold_read_us(h200_cold_reads(), point.bytes) /
             static_cast<double>(card.curve.size());
  return scale;
}

}  // namespace

void MlaResults::append(const std::string& line) const {
  std::ofstream(file_, std::ios::app) << line + "\n" << std::flush;
}

void MlaResults::add(const MlaRow& row, const MlaCell& cell, const MlaCandidate& candidate) const {
  json params = json::object();
  for (const auto& param : candidate.variant.params)
    params[param.name] = param.value;
  append(json{{"kind", "candidate"},
              {"stage", row.stage},
              {"cell", row.cell},
              {"name", cell.name()},
              {"layout", row.layout},
              {"candidate", row.candidate},
              {"default", row.is_default},
              {"family", candidate.variant.family},
              {"params", params},
              {"brief", row.brief},
              {"error", row.error},
              {"us", row.us},
              {"min_us", row.min_us},
              {"early_us", row.early_us},
              {"spread", row.spread},
              {"relative_error", row.relative_error}}
             .dump());
}
void MlaResults::add_simt(std::size_t cell, double us) const {
  append(json{{"kind", "simt"}, {"cell", cell}, {"us", us}}.dump());
}
void MlaResults::add(const MlaCard& card) const {
  json curve = json::array();
  for (const ColdRead& point : card.curve)
    curve.push_back({point.bytes, point.us});
  append(json{{"kind", "card"},
              {"name", card.name},
              {"empty_node_us", card.empty_node_us},
              {"curve", curve}}
             .dump());
}

std::vector<MlaRow> MlaResults::rows() const {
  std::vector<MlaRow> rows;
  for (const json& line : lines_of(file_, "candidate"))
    rows.push_back({.stage = line["stage"],
                    .cell = line["cell"],
                    .layout = line["layout"],
                    .candidate = line["candidate"],
                    .is_default = line["default"],
                    .brief = line["brief"],
                    .error = line["error"],
                    .us = line["us"],
                    .min_us = line["min_us"],
                    .early_us = line["early_us"],
                    .spread = line["spread"],
                    .relative_error = line["relative_error"]});
  return rows;
}
std::vector<double> MlaResults::simt_us(std::size_t cells) const {
  std::vector<double> times(cells, 0.0);
  for (const json& line : lines_of(file_, "simt"))
    if (const auto cell = line["cell"].get<std::size_t>(); cell < cells) times[cell] = line["us"];
  return times;
}
MlaCard MlaResults::card() const {
  MlaCard card;
  for (const json& line : lines_of(file_, "card")) {
    card.name = line["name"];
    card.empty_node_us = line["empty_node_us"].get<std::vector<double>>();
    card.curve.clear();
    for (const json& point : line["curve"])
      card.curve.push_back({point[0], point[1]});
  }
  return card;
}

void print_mla_head(const MlaResults& results) {
  const MlaCard card = results.card();
  std::string curve;
  for (const ColdRead& point : card.curve)
    curve += fmt::format(" {:.2f}:{:.2f}", point.bytes / 1e6, point.us);
  fmt::print("card {}; empty node {:.2f} us; cold reads MB:us{}; peer scaled by {:.3f}\n",
             card.name, fmt::join(card.empty_node_us, " / "), curve, peer_scale(card));
  fmt::print(
      "cell | us plain / early | FlashMLA scaled, x | floor, x | simt | default | error | best "
      "| next\n");
  std::fflush(stdout);
}

void print_mla_cell(const MlaResults& results, std::size_t index, const MlaCell& cell) {
  const auto rows = results.rows();
  std::vector<const MlaRow*> good;
  const MlaRow* fallback = nullptr;
  bool final_stage = false;
  for (const MlaRow& row : rows) {
    if (row.cell != index || !row.error.empty()) continue;
    good.push_back(&row);
    final_stage |= row.stage == "final";
    if (row.is_default) fallback = &row;  // the later measurement is the longer one
  }
  if (good.empty()) {
    fmt::print("{} | no candidate was right\n", cell.name());
    return;
  }
  std::erase_if(good, [&](const MlaRow* row) { return final_stage && row->stage != "final"; });
  std::sort(good.begin(), good.end(),
            [](const MlaRow* a, const MlaRow* b) { return a->us < b->us; });
  const MlaRow& best = *good.front();
  double early = best.early_us;  // of whichever candidate is the fastest so
  for (const MlaRow* row : good)
    if (row->early_us > 0) early = std::min(early, row->early_us);
  const MlaCard card = results.card();
  const double peer = cell.flashmla_us() * peer_scale(card);
  const double floor =
      std::max(cold_read_us(card.curve, cell.bytes()), cell.flops() / kGemmFlopsPerUs);
  std::string next;
  for (std::size_t i = 1; i < good.size() && i < 4; ++i)
    next += fmt::format(" | {:.2f}/{:.2f} {}", good[i]->us, good[i]->early_us, good[i]->brief);
  fmt::print(
      "{} | {:.2f} / {:.2f} | {:.1f} {:.2f} | {:.1f} {:.2f} | {:.0f} | {:.2f} | {:.1e} | {}{}\n",
      cell.name(), best.us, early, peer, peer / best.us, floor, best.us / floor,
      results.simt_us(index + 1)[index], fallback ? fallback->us : 0.0, best.relative_error,
      best.brief, next);
  std::fflush(stdout);
}

void print_mla_table(const MlaResults& results, const std::vector<MlaCell>& cells) {
  print_mla_head(results);
  std::set<std::size_t> measured;
  std::size_t wrong = 0;
  const auto rows = results.rows();
  for (const MlaRow& row : rows) {
    measured.insert(row.cell);
    wrong += row.error.empty() ? 0 : 1;
  }
  for (const std::size_t cell : measured)
    print_mla_cell(results, cell, cells.at(cell));
  fmt::print("{} measurements, {} of them wrong or failed\n", rows.size(), wrong);
}

}  // namespace ingot::bench
