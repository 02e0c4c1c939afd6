// Checks and measures the candidates of the indexer's and the compressor's families on the cells of
// docs/kernels/indexer.md. For developers; what users run is `ingot bench`.
//   indexer_bench compile --cubins DIR [--arch sm_90a] [--jobs N]   no GPU needed
//   indexer_bench run --cubins DIR [--only TEXT]                    one line per candidate
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <set>

#include "runtime/jit/nvrtc_compiler.hpp"
#include "tools/indexer_bench/bench.hpp"

using namespace ingot;
using namespace ingot::bench;

namespace {

struct Settings {
  std::filesystem::path cubins = "cubins";
  std::string arch = "sm_90a";
  std::string only;
  int jobs = 2;
};

int compile(const Settings& settings) {
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  std::vector<jit::Variant> variants;
  std::set<std::string> seen;
  for (const Candidate& candidate : candidates_of(indexer_cells(), limits))
    if (seen.insert(jit::describe(candidate.variant)).second) variants.push_back(candidate.variant);
  jit::NvrtcCompiler compiler(value_or_throw(jit::NvrtcApi::open(value_or_throw(jit::find_nvrtc(
      {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/nvidia/lib64"})))));
  const CubinFolder folder(settings.cubins, settings.arch);
  const auto report = folder.fill(compiler, variants, settings.jobs);
  fmt::print("indexer_bench: {} variants for {}: {} compiled, {} kept, {} failed or spilling\n",
             variants.size(), settings.arch, report.compiled, report.kept, report.failed.size());
  return report.failed.empty() ? 0 : 1;
}

int run(const Settings& settings) {
  const auto driver =
      value_or_throw(cu::DriverApi::open({"/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"}));
  const CubinFolder folder(settings.cubins, settings.arch);
  IndexerBench bench(driver, folder);
  fmt::print("{}; floor: 1.6 us + bytes / 4.6 TB/s, of an H200\n", bench.card());
  bool good = true;
  for (const Cell& cell : indexer_cells()) {
    if (cell.name().find(settings.only) == std::string::npos) continue;
    std::optional<Outcome> best;
    std::string best_name;
    for (const Candidate& candidate : candidates_of({cell}, bench.limits())) {
      const Outcome outcome = bench.run(cell, candidate);
      const std::string name = jit::describe(candidate.variant);
      if (!outcome.error.empty()) {
        good = false;
        fmt::print("{:28} WRONG: {}: {}\n", cell.name(), outcome.error, name);
        continue;
      }
      fmt::print("{:28} {:8.2f} us, {:8.2f} dependent, spread {:.3f}: {}\n", cell.name(),
                 outcome.plain.median_us, outcome.dependent.median_us, outcome.plain.spread, name);
      std::fflush(stdout);
      if (!best || outcome.plain.median_us < best->plain.median_us) {
        best = outcome;
        best_name = name;
      }
    }
    if (!best) continue;
    const double floor_us = 1.6 + cell.bytes() / 4.6e6;
    fmt::print("BEST {:23} {:8.2f} us = {:.2f} x floor of {:.2f} us, {:.2f} TB/s: {}\n",
               cell.name(), best->plain.median_us, best->plain.median_us / floor_us, floor_us,
               cell.bytes() / best->plain.median_us / 1e6, best_name);
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the indexer's and the compressor's kernels");
  Settings settings;
  app.require_subcommand(1);
  auto* compiling = app.add_subcommand("compile", "compile all candidates; needs no GPU");
  auto* running = app.add_subcommand("run", "check and measure them");
  for (auto* command : {compiling, running}) {
    command->add_option("--cubins", settings.cubins, "folder of compiled candidates");
    command->add_option("--arch", settings.arch, "architecture, sm_90a");
  }
  compiling->add_option("--jobs", settings.jobs, "compiles at a time");
  running->add_option("--only", settings.only, "cells whose name has this text");
  CLI11_PARSE(app, argc, argv);
  try {
    return *compiling ? compile(settings) : run(settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "indexer_bench: {}\n", error.what());
    return 1;
  }
}
