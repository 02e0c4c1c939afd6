// Measures the candidates of the sparse MLA decode families on every cell of the published
// comparison, each checked against the per-head kernel and a double reference first. For
// developers; what users run is `ingot bench`.
//   mla_bench compile --cubins DIR [--arch sm_90a] [--jobs N]   no GPU needed
//   mla_bench run --cubins DIR --out FILE.jsonl [--seconds N] [--only TEXT] [--all]
//   mla_bench table --out FILE.jsonl
//   mla_bench prefill --cubins DIR --out FILE.jsonl [--seconds N] [--only TEXT]   chunks of prompts
//   mla_bench trace --heads 64 --rows 128 --selected 512 [--tile-heads N] [--stages N] [--splits N]
//                   [--prefill]   clocks of every step inside the blocks of a wgmma family
//   mla_bench prefill --compile-only --cubins DIR                                 no GPU needed
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include "kernel_templates/family.hpp"
#include "kernel_templates/sparse_mla_decode_sm90.space.hpp"
#include "kernel_templates/sparse_mla_prefill_sm90.space.hpp"
#include "runtime/jit/compile_job.hpp"
#include "runtime/jit/compile_pool.hpp"
#include "runtime/jit/compile_worker.hpp"
#include "tools/mla_bench/prefill.hpp"
#include "tools/mla_bench/run.hpp"
#include "tools/mla_bench/trace.hpp"

using namespace ingot;
using namespace ingot::bench;

namespace {

constexpr const char* kMeasureCommand = "measure";  // hidden: the measuring process

struct Settings {
  std::filesystem::path cubins = "cubins";
  std::filesystem::path out = "mla_bench.jsonl";
  std::string arch = "sm_90a";
  std::string only;
  std::vector<std::filesystem::path> nvrtc;
  int jobs = static_cast<int>(std::thread::hardware_concurrency());
  int seconds = 100;
  bool compile_only = false;
  MlaCell traced{.heads = 64, .rows = 128, .selected = 512};
  int tile_heads = 64, stages = 3, splits = 1;
  bool trace_prefill = false;
  bool all = false;
};

/// Compiles what the folder lacks, in processes of their own. False when something failed.
bool compile(const Settings& settings, std::vector<jit::Variant> variants) {
  const CubinFolder folder(settings.cubins, settings.arch);
  std::set<std::string> seen;
  std::erase_if(variants, [&](const jit::Variant& variant) {
    return !seen.insert(jit::describe(variant)).second || folder.load(variant).has_value();
  });
  if (variants.empty()) return true;
  auto directories = settings.nvrtc;
  for (const auto& directory : library_directories())
    directories.push_back(directory);
  auto pool =
      jit::CompilePool::with_nvrtc(value_or_throw(jit::find_nvrtc(directories)), settings.jobs);
  const auto report = folder.fill(pool, variants, settings.jobs);
  fmt::print(stderr, "mla_bench: {} variants of {} compiled for {}, {} failed or spilling\n",
             report.compiled, seen.size(), settings.arch, report.failed.size());
  return report.failed.empty();
}

int compile_all(const Settings& settings) {
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  std::vector<jit::Variant> variants = fixed_variants(limits);
  for (const MlaCell& cell : mla_cells())
    for (const MlaCandidate& candidate : mla_candidates(cell, 0, limits))
      variants.push_back(candidate.variant);
  return compile(settings, std::move(variants)) ? 0 : 1;
}

int prefill(const Settings& settings) {
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  std::vector<jit::Variant> variants;
  for (const MlaCell& cell : prefill_cells())
    for (const PrefillCandidate& candidate : prefill_candidates(cell, limits))
      if (cell.name().find(settings.only) != std::string::npos)
        variants.push_back(candidate.variant);
  const bool compiled = compile(settings, std::move(variants));
  if (settings.compile_only) return compiled ? 0 : 1;
  return run_prefill_bench(settings.cubins, settings.arch, settings.out, settings.only,
                           settings.seconds)
             ? 0
             : 1;
}

template <class Family>
int trace(const Settings& settings, typename Family::Params params,
          const std::function<cu::LaunchShape(const typename Family::Problem&,
                                              const typename Family::Params&)>& shape_of) {
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  compile(settings, fixed_variants(limits));
  const auto problem = problem_of(settings.traced, mla_layouts()[0]);
  problem.apply_to(params);
  const jit::Variant variant{std::string(Family::kStem), jit::param_values(params)};
  const MlaCandidate candidate{.variant = variant, .shape = shape_of(problem, params)};
  auto directories = settings.nvrtc;
  for (const auto& directory : library_directories())
    directories.push_back(directory);
  auto pool = jit::CompilePool::with_nvrtc(value_or_throw(jit::find_nvrtc(directories)), 1);
  const jit::SourceTree tree(kernels::embedded_templates());
  const auto job =
      value_or_throw(traced_job(value_or_throw(tree.bundle(jit::template_name(variant.family))),
                                variant, settings.arch, Family::smem_bytes(params)));
  const auto kernel = value_or_throw(pool.compile(job));
  fmt::print("{}: {} bytes of spills, of the stamps too\n", jit::describe(variant),
             kernel.resources.spill_store_bytes);
  if (settings.compile_only) return 0;
  const CubinFolder folder(settings.cubins, settings.arch);
  MlaBench bench(value_or_throw(cu::DriverApi::open(library_directories())), folder);
  bench.enter(settings.traced);
  const int blocks =
      static_cast<int>(candidate.shape.grid.x * candidate.shape.grid.y * candidate.shape.grid.z);
  const int tiles = (problem.piece_keys(settings.splits) + 63) / 64 *
                    std::max(settings.traced.rows * settings.traced.heads * settings.splits /
                                 (settings.tile_heads * blocks),
                             1);
  fmt::print("{}", trace_table(bench.trace(candidate, kernel.cubin), tiles));
  return 0;
}

int trace_family(const Settings& settings) {
  using kernels::SparseMlaDecodeSm90, kernels::SparseMlaPrefillSm90;
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  if (settings.trace_prefill) {
    SparseMlaPrefillSm90::Params params;
    params.TILE_HEADS = settings.tile_heads;
    params.STAGES = settings.stages;
    return trace<SparseMlaPrefillSm90>(settings, params, [&](const auto& problem, const auto& c) {
      return SparseMlaPrefillSm90::launch_shape(problem, c, limits);
    });
  }
  SparseMlaDecodeSm90::Params params;
  params.TILE_HEADS = settings.tile_heads;
  params.STAGES = settings.stages;
  params.NSPLIT = settings.splits;
  return trace<SparseMlaDecodeSm90>(settings, params, [](const auto& problem, const auto& c) {
    return SparseMlaDecodeSm90::launch_shape(problem, c);
  });
}

int measure_all(const Settings& settings) {
  const MlaRun::Settings run{
      .out = settings.out,
      .arch = settings.arch,
      .only = settings.only,
      .all = settings.all,
      .seconds = settings.seconds,
      .child = {.command = {"/proc/self/exe", kMeasureCommand, settings.cubins.string(),
                            settings.arch},
                .patience = std::chrono::seconds(10),
                .start_patience = std::chrono::seconds(15),
                .most_lost = 6},
      .prepare = [&](const std::vector<jit::Variant>& variants) {
        (void)compile(settings, variants);  // what failed is reported again where it is measured
      }};
  return MlaRun(run).all() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::strcmp(argv[1], jit::kCompileWorkerCommand) == 0)
    return jit::run_compile_worker({argv + 2, argv + argc});
  if (argc == 4 && std::strcmp(argv[1], kMeasureCommand) == 0)
    return serve_mla_bench(Subprocess::kChildChannel, argv[2], argv[3]);
  Settings settings;
  CLI::App app("Measures the sparse MLA decode candidates beside FlashMLA's published times.");
  app.require_subcommand(1);
  auto* compile_command = app.add_subcommand("compile", "fill a folder with compiled candidates");
  auto* run_command = app.add_subcommand("run", "check and time them on this machine's first GPU");
  auto* table_command = app.add_subcommand("table", "print the table of a results file");
  auto* prefill_command = app.add_subcommand("prefill", "check and time chunks of prompts");
  prefill_command->add_flag("--compile-only", settings.compile_only, "needs no GPU");
  auto* trace_command = app.add_subcommand("trace", "clocks of each step inside a wgmma kernel");
  trace_command->add_option("--heads", settings.traced.heads, "of the rank");
  trace_command->add_option("--rows", settings.traced.rows, "of a launch")
      ->check(CLI::Range(1, 1024));
  trace_command->add_option("--selected", settings.traced.selected, "keys beside the window")
      ->check(CLI::Range(0, 1024));
  trace_command->add_option("--tile-heads", settings.tile_heads, "heads of a block");
  trace_command->add_option("--stages", settings.stages, "tiles in the ring");
  trace_command->add_option("--splits", settings.splits, "blocks of a row");
  trace_command->add_flag("--prefill", settings.trace_prefill, "the prefill family");
  trace_command->add_flag("--compile-only", settings.compile_only, "needs no GPU");
  for (auto* command : {compile_command, run_command, prefill_command, trace_command}) {
    command->add_option("--cubins", settings.cubins, "folder of compiled candidates");
    command->add_option("--arch", settings.arch, "architecture");
    command->add_option("--jobs", settings.jobs, "compilations side by side");
    command->add_option("--nvrtc", settings.nvrtc, "folders of NVRTC");
  }
  run_command->add_flag("--all", settings.all, "screen every candidate of a cell, not a sample");
  for (auto* command : {run_command, table_command, prefill_command})
    command->add_option("--out", settings.out, "results, JSON lines");
  for (auto* command : {run_command, prefill_command}) {
    command->add_option("--seconds", settings.seconds, "stop after this long");
    command->add_option("--only", settings.only, "cells whose name holds this: 'h8 B128'");
  }
  CLI11_PARSE(app, argc, argv);
  if (compile_command->parsed()) return compile_all(settings);
  if (run_command->parsed()) return measure_all(settings);
  if (prefill_command->parsed()) return prefill(settings);
  if (trace_command->parsed()) return trace_family(settings);
  print_mla_table(MlaResults(settings.out), mla_cells());
  return 0;
} catch (const EngineError& error) {
  fmt::print(stderr, "mla_bench: {}\n{}", error.error().message, error.error().log);
  return exit_status(error.error().code);
} catch (const std::exception& error) {
  fmt::print(stderr, "mla_bench: {}\n", error.what());
  return 1;
}
