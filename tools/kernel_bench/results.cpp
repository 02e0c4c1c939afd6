#include "tools/kernel_bench/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace ingot::bench {
namespace {

using nlohmann::json;

json describe(const Row& row, const Cell& cell, const Candidate& candidate) {
  json params;
  for (const auto& value : candidate.variant.params)
    params[value.name] = value.value;
  return {{"kind", "linear"},
          {"stage", row.stage},
          {"cell", row.cell},
          {"candidate", row.candidate},
          {"name", cell.name},
          {"tokens", cell.problem.tokens},
          {"cols", cell.problem.cols},
          {"rows", cell.problem.rows},
          {"input", row.x_bf16 ? "bf16" : "e4m3"},
          {"brief", row.brief},
          {"family", candidate.variant.family},
          {"params", params},
          {"grid", kernels::block_count(candidate.shape.grid)},
          {"smem_bytes", candidate.shape.smem_bytes},
          {"error", row.error}};
}

json describe(const Timing& timing) {
  return {{"median_us", timing.median_us},
          {"min_us", timing.min_us},
          {"spread", timing.spread},
          {"replays", timing.replays},
          {"nodes", timing.nodes}};
}

}  // namespace

void ResultsFile::append(const std::string& line) const {
  std::ofstream out(file_, std::ios::app | std::ios::binary);
  out << line + "\n";
  if (!out.flush()) {
    throw EngineError(ErrorCode::io, fmt::format("appending to {} failed", file_.string()));
  }
}

void ResultsFile::add(const Row& row, const Cell& cell, const Candidate& candidate,
                      const Outcome& outcome) const {
  json line = describe(row, cell, candidate);
  line["relative_error"] = outcome.relative_error;
  if (outcome.timing.replays > 0) {
    line["timing"] = describe(outcome.timing);
    line["tflops"] = cell.flops() / outcome.timing.median_us * 1e-6;
    line["tbytes_per_s"] = cell.bytes() / outcome.timing.median_us * 1e-6;
  }
  if (outcome.early) line["early"] = describe(*outcome.early);
  append(line.dump());
}

void ResultsFile::add_failure(const Row& row, const Cell& cell, const Candidate& candidate) const {
  append(describe(row, cell, candidate).dump());
}

void ResultsFile::add(const Card& card) const {
  json curve = json::array();
  for (const ColdRead& point : card.curve)
    curve.push_back({point.bytes, point.us});
  append(json{{"kind", "card"},
              {"name", card.name},
              {"empty_node_us", card.empty_node_us},
              {"cold_read", curve},
              {"act_quant_us", card.act_quant_us}}
             .dump());
}

std::vector<Row> ResultsFile::rows() const {
  std::vector<Row> rows;
  std::ifstream in(file_);
  for (std::string text; std::getline(in, text);) {
    const json line = json::parse(text);
    if (line["kind"] != "linear") continue;
    Row row{.stage = line["stage"],
            .cell = line["cell"],
            .candidate = line["candidate"],
            .x_bf16 = line["input"] == "bf16",
            .brief = line["brief"],
            .error = line["error"]};
    if (line.contains("timing")) {
      row.us = line["timing"]["median_us"];
      row.spread = line["timing"]["spread"];
    }
    if (line.contains("early")) row.early_us = line["early"]["median_us"];
    rows.push_back(row);
  }
  return rows;
}

Card ResultsFile::card() const {
  Card card;
  std::ifstream in(file_);
  for (std::string text; std::getline(in, text);) {
    const json line = json::parse(text);
    if (line["kind"] != "card") continue;
    card.name = line["name"];
    card.empty_node_us = line["empty_node_us"].get<std::vector<double>>();
    card.act_quant_us = line["act_quant_us"].get<std::vector<double>>();
    for (const auto& point : line["cold_read"])
      card.curve.push_back({point[0], point[1]});
  }
  return card;
}

void print_table(const std::vector<Row>& rows, const Card& card, const std::vector<Cell>& cells,
                 const std::vector<std::string>& only) {
  fmt::print("{}: empty node 1 block / all SMs / early:", card.name);
  for (const double us : card.empty_node_us)
    fmt::print(" {:.2f}", us);
  fmt::print(" us\ncold read MB:us");
  for (const ColdRead& point : card.curve)
    fmt::print(" {:.2f}:{:.2f}", point.bytes * 1e-6, point.us);
  fmt::print(
      "\n{:<9} {:>3} | {:>6} {:>6} {:>6} {:>5} {:>5} | {:<22} {:>5} | {:>6} {:>6} {:<22} | {:>6} "
      "{:>5}\n",
      "cell", "M", "us", "early", "peer", "/peer", "/flr", "e4m3 in", "sprd", "bf16in", "early", "",
      "mma", "quant");
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    if (!is_wanted(cell, only)) continue;
    const auto best = [&](bool x_bf16, const char* family) -> const Row* {
      const Row* found = nullptr;
      for (const Row& row : rows) {
        if (row.cell != i || row.x_bf16 != x_bf16 || !row.error.empty()) continue;
        if (!row.brief.starts_with(family)) continue;
        // A cell's final rows, where there are any, replace its screening.
        const bool better = found == nullptr || (row.stage == "final" && found->stage != "final") ||
                            (row.stage == found->stage && row.us < found->us);
        if (better && !(found != nullptr && found->stage == "final" && row.stage != "final"))
          found = &row;
      }
      return found;
    };
    const Row* quantized = best(false, "");
    const Row* bf16 = best(true, "");
    const Row* plain_mma = best(false, "mma");
    const double floor_us = card.curve.size() < 2 ? 0 : cold_read_us(card.curve, cell.bytes());
    fmt::print("{:<9} {:>3} | ", cell.name, cell.problem.tokens);
    if (quantized == nullptr) {
      fmt::print("no correct candidate\n");
      continue;
    }
    fmt::print("{:>6.2f} {:>6.2f} {:>6.1f} {:>5.2f} {:>5.2f} | {:<22} {:>5.3f} | ", quantized->us,
               quantized->early_us, cell.peer_us, quantized->us / cell.peer_us,
               floor_us > 0 ? quantized->us / floor_us : 0.0, quantized->brief, quantized->spread);
    fmt::print("{:>6.2f} {:>6.2f} {:<22} | {:>6.2f} {:>5.2f}\n", bf16 != nullptr ? bf16->us : 0.0,
               bf16 != nullptr ? bf16->early_us : 0.0, bf16 != nullptr ? bf16->brief : "-",
               plain_mma != nullptr ? plain_mma->us : 0.0,
               i < card.act_quant_us.size() ? card.act_quant_us[i] : 0.0);
  }
  int failed = 0;
  for (const Row& row : rows) {
    if (row.error.empty()) continue;
    if (++failed <= 12) {
      fmt::print("FAILED {} M={} {} {}: {}\n", cells[row.cell].name, cells[row.cell].problem.tokens,
                 row.x_bf16 ? "bf16" : "e4m3", row.brief, row.error);
    }
  }
  fmt::print("{} measurements, {} failed\n", rows.size(), failed);
}

}  // namespace ingot::bench
