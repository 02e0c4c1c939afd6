#include "tools/moe_bench/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/kernel_bench/h200_curve.hpp"

namespace ingot::bench {
namespace {

using nlohmann::json;

double floor_us(const MoeCell& cell, double experts) {
  const auto& last = h200_cold_reads().back();
  const double bytes = cell.bytes(experts);
  return bytes <= last.bytes ? cold_read_us(h200_cold_reads(), bytes)
                             : last.us + (bytes - last.bytes) / kH200BytesPerUs;
}

}  // namespace

void MoeResults::add(const MoeRow& row, const MoeCell& cell, const MoeCandidate* candidate) const {
  json params = json::object();
  if (candidate != nullptr)
    for (const auto& param : candidate->variant.params)
      params[param.name] = param.value;
  std::ofstream(file_, std::ios::app) << json{{"stage", row.stage},
                                              {"cell", row.cell},
                                              {"name", cell.name()},
                                              {"candidate", row.candidate},
                                              {"params", params},
                                              {"brief", row.brief},
                                              {"error", row.error},
                                              {"experts", row.experts},
                                              {"early_us", row.early_us},
                                              {"plain_us", row.plain_us},
                                              {"min_us", row.min_us},
                                              {"spread", row.spread},
                                              {"relative_error", row.relative_error}}
                                                 .dump() +
                                             "\n"
                                      << std::flush;
}

std::vector<MoeRow> MoeResults::rows() const {
  std::vector<MoeRow> rows;
  std::ifstream in(file_);
  for (std::string text; std::getline(in, text);) {
    const json line = json::parse(text, nullptr, false);
    if (line.is_discarded()) continue;
    rows.push_back({.stage = line["stage"],
                    .cell = line["cell"],
                    .candidate = line["candidate"],
                    .brief = line["brief"],
                    .error = line["error"],
                    .experts = line["experts"],
                    .early_us = line["early_us"],
                    .plain_us = line["plain_us"],
                    .min_us = line["min_us"],
                    .spread = line["spread"],
                    .relative_error = line["relative_error"]});
  }
  return rows;
}

void print_moe_table(const MoeResults& results, const std::vector<MoeCell>& cells) {
  const auto rows = results.rows();
  fmt::print(
      "cell | us early / plain | floor, x | peer, x | default | experts | error | best | next\n");
  int wrong = 0;
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    std::vector<const MoeRow*> good;
    double fallback = 0;
    for (const MoeRow& row : rows) {
      if (row.cell != cell) continue;
      if (!row.error.empty()) {
        ++wrong;
        continue;
      }
      good.push_back(&row);
      if (row.candidate == 0) fallback = row.early_us;
    }
    if (good.empty()) continue;
    if (std::any_of(good.begin(), good.end(),
                    [](const MoeRow* row) { return row->stage == "final"; }))
      std::erase_if(good, [](const MoeRow* row) { return row->stage != "final"; });
    std::sort(good.begin(), good.end(),
              [](const MoeRow* a, const MoeRow* b) { return a->early_us < b->early_us; });
    const MoeRow& best = *good.front();
    const double floor = floor_us(cells[cell], best.experts), peer = cells[cell].peer_us();
    std::string next;
    for (std::size_t i = 1; i < good.size() && i < 4; ++i)
      next += fmt::format(" | {:.2f} {}", good[i]->early_us, good[i]->brief);
    fmt::print("{} | {:.2f} / {:.2f} | {:.1f} {:.2f} | {} | {:.2f} | {:.1f} | {:.1e} | {}{}\n",
               cells[cell].name(), best.early_us, best.plain_us, floor, best.early_us / floor,
               peer > 0 ? fmt::format("{:.1f} {:.2f}", peer, peer / best.early_us) : "-", fallback,
               best.experts, best.relative_error, best.brief, next);
  }
  fmt::print("{} measurements, {} of them wrong or failed\n", rows.size(), wrong);
}

}  // namespace ingot::bench
