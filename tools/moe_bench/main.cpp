// Measures the candidates of moe_decode on every cell of the published comparison, each checked
// against a double reference first. For developers; what users run is `ingot bench`.
//   moe_bench compile --cubins DIR [--arch sm_90a] [--jobs N] [--only TEXT]   no GPU needed
//   moe_bench run --cubins DIR --out FILE.jsonl [--seconds N] [--only TEXT]
//   moe_bench table --out FILE.jsonl
//   moe_bench compile-prefill --cubins DIR [--only "TP1 4096"] [--candidate "t112"]   no GPU needed
//   moe_bench prefill --cubins DIR [--only TEXT] [--candidate TEXT] [--seconds N]
// The last two do the same for moe_prefill_sm90 and the launches around it, beside moe_decode.
// Candidates run in a child process: one that faults or hangs costs itself, not the rest.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>

#include "runtime/jit/nvrtc_compiler.hpp"
#include "tools/kernel_bench/child_runs.hpp"
#include "tools/moe_bench/prefill_bench.hpp"
#include "tools/moe_bench/results.hpp"

using namespace ingot;
using namespace ingot::bench;
using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kPatience{12};
constexpr int kMostLostChildren = 10;
constexpr std::size_t kFinalists = 3;

struct Settings {
  std::filesystem::path cubins = "cubins";
  std::filesystem::path out = "moe_bench.jsonl";
  std::string arch = "sm_90a";
  std::string only, candidate;
  int jobs = 2;
  int seconds = 90;
};

struct Item {
  std::size_t cell = 0;
  std::size_t candidate = 0;
};

std::vector<std::filesystem::path> library_directories() {
  return {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/nvidia/lib64"};
}

jit::NvrtcCompiler open_compiler() {
  return jit::NvrtcCompiler(
      value_or_throw(jit::NvrtcApi::open(value_or_throw(jit::find_nvrtc(library_directories())))));
}

int compile(const Settings& settings) {
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  std::vector<jit::Variant> variants;
  std::set<std::string> seen;
  for (const MoeCell& cell : moe_cells()) {
    if (cell.name().find(settings.only) == std::string::npos) continue;
    for (const MoeCandidate& candidate : moe_candidates(cell, limits))
      if (seen.insert(jit::describe(candidate.variant)).second)
        variants.push_back(candidate.variant);
  }
  jit::NvrtcCompiler compiler = open_compiler();
  const CubinFolder folder(settings.cubins, settings.arch);
  const auto report = folder.fill(compiler, variants, settings.jobs);
  fmt::print("moe_bench: {} variants for {}: {} compiled, {} kept, {} failed or spilling\n",
             variants.size(), settings.arch, report.compiled, report.kept, report.failed.size());
  return report.failed.empty() ? 0 : 1;
}

class Run {
 public:
  explicit Run(const Settings& settings)
      : settings_(settings),
        results_(settings.out),
        folder_(settings.cubins, settings.arch),
        limits_(value_or_throw(cu::limits_of_arch(settings.arch))) {
    for (const MoeCell& cell : cells_)
      candidates_.push_back(moe_candidates(cell, limits_));
  }

  int all() {
    std::filesystem::remove(settings_.out);
    // Cells from screening to finals, the most telling first: what is cut off matters least.
    std::vector<Item> items;
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      if (cells_[cell].name().find(settings_.only) == std::string::npos) continue;
      for (std::size_t i = 0; i < candidates_[cell].size(); ++i)
        items.push_back({cell, i});
    }
    measure(items);
    print_moe_table(results_, cells_);
    const auto rows = results_.rows();
    fmt::print(stderr, "moe_bench: {} s\n", elapsed_s());
    return !rows.empty() && std::all_of(rows.begin(), rows.end(),
                                        [](const MoeRow& row) { return row.error.empty(); })
               ? 0
               : 1;
  }

 private:
  long elapsed_s() const {
    return std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - start_).count();
  }
  MoeRow row_of(const Item& item, const char* stage) const {
    MoeRow row;
    row.stage = stage;
    row.cell = item.cell;
    row.candidate = item.candidate;
    row.brief = candidates_[item.cell][item.candidate].brief();
    return row;
  }
  void add(const Item& item, const MoeRow& row) const {
    if (!row.error.empty())
      fmt::print(stderr, "{} {}: {}\n", cells_[item.cell].name(), row.brief, row.error);
    results_.add(row, cells_[item.cell], &candidates_[item.cell][item.candidate]);
  }
  void measure_one(MoeBench& bench, const Item& item, bool thoroughly) const {
    const MoeOutcome outcome = bench.run(candidates_[item.cell][item.candidate], thoroughly);
    MoeRow row = row_of(item, thoroughly ? "final" : "screen");
    row.error = outcome.error;
    row.experts = bench.experts_per_node();
    row.early_us = outcome.early.median_us;
    row.min_us = outcome.early.min_us;
    row.spread = outcome.early.spread;
    if (outcome.plain) row.plain_us = outcome.plain->median_us;
    row.relative_error = outcome.relative_error;
    add(item, row);
  }

  /// The fastest of a cell, and its default.
  std::vector<Item> finalists(std::size_t cell) const {
    std::vector<MoeRow> rows = results_.rows();
    std::erase_if(rows, [&](const MoeRow& row) {
      return row.cell != cell || row.stage != "screen" || !row.error.empty();
    });
    std::sort(rows.begin(), rows.end(),
              [](const MoeRow& a, const MoeRow& b) { return a.early_us < b.early_us; });
    std::vector<Item> items;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (i < kFinalists || rows[i].candidate == 0) items.push_back({cell, rows[i].candidate});
    return items;
  }

  void measure(const std::vector<Item>& items) {
    ChildRuns children(kPatience, kMostLostChildren);
    children.run(
        items.size(),
        [&](std::size_t first) {
          MoeBench bench(value_or_throw(cu::DriverApi::open(library_directories())), folder_);
          const auto& device = bench.context().device();
          if (device.sm_count != limits_.sm_count)
            throw EngineError(ErrorCode::unsupported,
                              fmt::format("{} has {} multiprocessors, candidates were made for {}",
                                          device.name, device.sm_count, limits_.sm_count));
          std::size_t entered = cells_.size();
          for (std::size_t i = first; i < items.size() && elapsed_s() < settings_.seconds; ++i) {
            children.begin(i);
            if (entered != items[i].cell) bench.enter(cells_[entered = items[i].cell]);
            measure_one(bench, items[i], false);
            if (i + 1 < items.size() && items[i + 1].cell == entered) continue;
            for (const Item& item : finalists(entered))
              measure_one(bench, item, true);
            fmt::print(stderr, "moe_bench: {} after {} s\n", cells_[entered].name(), elapsed_s());
          }
        },
        [&](std::size_t at, const std::string& why) {
          MoeRow row = row_of(items[at], "screen");
          row.error = why;
          add(items[at], row);
        });
  }

  const Settings& settings_;
  MoeResults results_;
  CubinFolder folder_;
  cu::DeviceLimits limits_;
  std::vector<MoeCell> cells_ = moe_cells();
  std::vector<std::vector<MoeCandidate>> candidates_;  // of each cell
  steady_clock::time_point start_ = steady_clock::now();
};

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  CLI::App app("Measures the candidates of the routed experts beside other engines' times.");
  app.require_subcommand(1);
  auto* compile_command = app.add_subcommand("compile", "fill a folder with compiled candidates");
  auto* run_command = app.add_subcommand("run", "check and time them on this machine's first GPU");
  auto* table_command = app.add_subcommand("table", "print the table of a results file");
  auto* compile_prefill_command =
      app.add_subcommand("compile-prefill", "the same for many tokens' families");
  auto* prefill_command = app.add_subcommand("prefill", "check and time those");
  for (auto* command : {compile_prefill_command, prefill_command})
    command->add_option("--candidate", settings.candidate, "candidates whose name holds this");
  for (auto* command : {compile_command, run_command, compile_prefill_command, prefill_command}) {
    command->add_option("--cubins", settings.cubins, "folder of compiled candidates");
    command->add_option("--arch", settings.arch, "architecture");
    command->add_option("--only", settings.only, "cells whose name holds this: 'TP8 B16'");
  }
  for (auto* command : {run_command, table_command})
    command->add_option("--out", settings.out, "results, JSON lines");
  for (auto* command : {compile_command, compile_prefill_command})
    command->add_option("--jobs", settings.jobs, "compilations side by side");
  for (auto* command : {run_command, prefill_command})
    command->add_option("--seconds", settings.seconds, "stop after this long");
  CLI11_PARSE(app, argc, argv);
  if (compile_command->parsed()) return compile(settings);
  if (run_command->parsed()) return Run(settings).all();
  const CubinFolder folder(settings.cubins, settings.arch);
  if (compile_prefill_command->parsed()) {
    jit::NvrtcCompiler compiler = open_compiler();
    return compile_prefill(settings.arch, folder, compiler, settings.only, settings.candidate,
                           settings.jobs);
  }
  if (prefill_command->parsed())
    return run_prefill(value_or_throw(cu::DriverApi::open(library_directories())), folder,
                       settings.only, settings.candidate, settings.seconds);
  print_moe_table(MoeResults(settings.out), moe_cells());
  return 0;
} catch (const EngineError& error) {
  fmt::print(stderr, "moe_bench: {}\n{}", error.error().message, error.error().log);
  return exit_status(error.error().code);
} catch (const std::exception& error) {
  fmt::print(stderr, "moe_bench: {}\n", error.what());
  return 1;
}
