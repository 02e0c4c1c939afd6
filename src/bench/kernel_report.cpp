#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "src/bench/kernel_bench.hpp"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

/// Names of the fields in which problems of the same families differ.
using Differing = std::map<std::string, std::set<std::string>>;
Differing differing(std::span<const KernelCell> cells) {
  std::map<std::string, std::map<std::string, std::set<std::int64_t>>> values;
  for (const KernelCell& cell : cells)
    for (const ProblemField& field : cell.problem)
      values[cell.families][field.name].insert(field.value);
  Differing names;
  for (const auto& [families, fields] : values)
    for (const auto& [name, all] : fields)
      if (all.size() > 1) names[families].insert(name);
  return names;
}

/// "TP 8, sparse_mla_decode: rows=16 heads=8", without what all of these families share.
std::string problem_text(const KernelCell& cell, const std::set<std::string>& names) {
  std::string text = fmt::format("TP {}, {}:", cell.tp_size, cell.families);
  for (const ProblemField& field : cell.problem)
    if (names.empty() || names.contains(field.name))
      text += fmt::format(" {}={}", field.name, field.value);
  return text;
}

/// By TP size, families and problem.
std::vector<const KernelCell*> in_order(std::span<const KernelCell> cells) {
  std::vector<const KernelCell*> order;
  for (const KernelCell& cell : cells)
    order.push_back(&cell);
  const auto place = [](const KernelCell* cell) {
    std::vector<std::int64_t> numbers;
    for (const ProblemField& field : cell->problem)
      numbers.push_back(field.value);
    return std::tuple(cell->tp_size, cell->families, numbers);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const KernelCell* a, const KernelCell* b) { return place(a) < place(b); });
  return order;
}

void print_kernel(const KernelCell& cell, const TimedKernel& one, std::string_view mark,
                  std::FILE* out) {
  if (!one.error.empty()) {
    fmt::print(out, "{:<9} {:>9} {:>7} {:>7} {:>8} {:>9}  {}: {}\n", mark, "–", "", "", "", "",
               jit::describe(one.variant), one.error);
    return;
  }
  fmt::print(out, "{:<9} {:>9.2f} {:>6.1f}% {:>6.1f}% {:>8.2f} {:>9.1f}  {}\n", mark, one.us,
             100 * one.spread, 100 * cell.floor_us / one.us, cell.work.bytes / one.us / 1e6,
             cell.work.operations / one.us / 1e6, jit::describe(one.variant));
}

}  // namespace

void print_kernels(std::span<const KernelCell> cells, std::FILE* out) {
  fmt::print(out, "\n{:<9} {:>9} {:>7} {:>7} {:>8} {:>9}  {}\n", "", "us", "spread", "floor",
             "TB/s", "TFLOP/s", "kernel");
  Differing names = differing(cells);
  for (const KernelCell* const at : in_order(cells)) {
    const KernelCell& cell = *at;
    fmt::print(out, "{}, floor {:.2f} us{}{}\n", problem_text(cell, names[cell.families]),
               cell.floor_us, cell.error.empty() ? "" : ": not measured: ", cell.error);
    for (const TimedKernel& one : cell.kernels)
      print_kernel(cell, one, one.source.empty() ? "candidate" : one.source, out);
  }
}

std::string kernel_json(const BenchSubject& subject, const KernelCell& cell) {
  Json line;
  line["bench"] = "kernels";
  line["device"] = subject.device;
  line["arch"] = subject.arch;
  line["driver"] = subject.driver_branch;
  line["nvrtc"] = subject.compiler;
  line["ingot"] = subject.version;
  line["tp"] = cell.tp_size;
  line["families"] = cell.families;
  line["problem"] = Json::object();
  for (const ProblemField& field : cell.problem)
    line["problem"][field.name] = field.value;
  line["bytes"] = cell.work.bytes;
  line["operations"] = cell.work.operations;
  line["floor_us"] = cell.floor_us;
  if (!cell.error.empty()) line["error"] = cell.error;
  line["kernels"] = Json::array();
  for (const TimedKernel& one : cell.kernels) {
    Json kernel{{"kernel", jit::describe(one.variant)}, {"choice", one.source}};
    if (one.error.empty()) {
      kernel["us"] = one.us;
      kernel["spread"] = one.spread;
    } else {
      kernel["error"] = one.error;
    }
    line["kernels"].push_back(std::move(kernel));
  }
  auto& card = line["card"];
  card["read_bytes_per_us"] = subject.rates.bytes_per_us();
  card["f16_operations_per_us"] = subject.rates.f16_per_us;
  card["fp8_operations_per_us"] = subject.rates.fp8_per_us;
  card["empty_node_us"] = subject.rates.empty_node_us;
  card["cold_reads"] = Json::array();
  for (const ColdRead& read : subject.rates.reads)
    card["cold_reads"].push_back({{"bytes", read.bytes}, {"us", read.us}});
  return line.dump();
}

std::vector<RooflinePoint> roofline_points(std::span<const KernelCell> cells) {
  std::vector<RooflinePoint> points;
  for (const KernelCell& cell : cells) {
    const TimedKernel* const running = cell.running();
    if (running == nullptr || cell.work.operations <= 0 || cell.work.bytes <= 0) continue;
    points.push_back({.label = running->variant.family,
                      .operations_per_byte = cell.work.operations / cell.work.bytes,
                      .operations_per_us = cell.work.operations / running->us});
  }
  return points;
}

}  // namespace ingot
