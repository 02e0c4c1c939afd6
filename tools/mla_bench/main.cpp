// Measures the candidates of the sparse MLA decode families on every cell of the published
// comparison, each checked against the per-head kernel and a double reference first. For
// developers; what users run is `ingot bench`.
//   mla_bench compile --cubins DIR [--arch sm_90a] [--jobs N]   no GPU needed
//   mla_bench run --cubins DIR --out FILE.jsonl [--seconds N] [--only TEXT]
//   mla_bench table --out FILE.jsonl
// Candidates run in a child process: one that faults or hangs costs itself, not the rest.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "kernel_templates/memory_read.space.hpp"
#include "runtime/jit/nvrtc_compiler.hpp"
#include "tools/mla_bench/results.hpp"

using namespace ingot;
using namespace ingot::bench;
using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kPatience{12};  // without a sign of life
constexpr int kMostLostChildren = 10;
constexpr std::size_t kMostScreened = 24;  // of a cell that is not among the telling ones
constexpr std::size_t kTellingCells = 16;
constexpr std::size_t kFinalists = 3;

/// Layouts that are compared on a cell, the first of them being screened.
int layouts_of(std::size_t cell) {
  return cell < kTellingCells ? static_cast<int>(mla_layouts().size()) : 1;
}

struct Settings {
  std::filesystem::path cubins = "cubins";
  std::filesystem::path out = "mla_bench.jsonl";
  std::string arch = "sm_90a";
  std::string only;
  int jobs = 2;
  int seconds = 220;
};

struct Item {
  std::size_t cell = 0;
  int layout = 0;
  std::size_t candidate = 0;
};

/// What parent and child both see.
struct Shared {
  std::atomic<std::size_t> at;     ///< item in work; the number of items: done
  std::atomic<std::int64_t> sign;  ///< grows with every step
};

std::vector<std::filesystem::path> library_directories() {
  return {"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/local/nvidia/lib64"};
}

jit::NvrtcCompiler open_compiler() {
  return jit::NvrtcCompiler(
      value_or_throw(jit::NvrtcApi::open(value_or_throw(jit::find_nvrtc(library_directories())))));
}

/// What every run needs beside the candidates.
std::vector<jit::Variant> fixed_variants(const cu::DeviceLimits& limits) {
  std::vector<jit::Variant> variants;
  for (const auto& params : kernels::MemoryRead::space({}, limits).candidates())
    variants.push_back({std::string(kernels::MemoryRead::kStem), jit::param_values(params)});
  variants.push_back(simt_candidate(mla_cells().front()).variant);
  return variants;
}

int compile(const Settings& settings) {
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  std::vector<jit::Variant> variants;
  std::set<std::string> seen;
  const auto want = [&](const jit::Variant& variant) {
    if (seen.insert(jit::describe(variant)).second) variants.push_back(variant);
  };
  for (const jit::Variant& variant : fixed_variants(limits))
    want(variant);
  for (const MlaCell& cell : mla_cells())
    for (const MlaCandidate& candidate : mla_candidates(cell, 0, limits))
      want(candidate.variant);
  jit::NvrtcCompiler compiler = open_compiler();
  const CubinFolder folder(settings.cubins, settings.arch);
  const auto report = folder.fill(compiler, variants, settings.jobs);
  fmt::print("mla_bench: {} variants for {}: {} compiled, {} kept, {} failed or spilling\n",
             variants.size(), settings.arch, report.compiled, report.kept, report.failed.size());
  return report.failed.empty() ? 0 : 1;
}

class Run {
 public:
  explicit Run(const Settings& settings)
      : settings_(settings), results_(settings.out), folder_(settings.cubins, settings.arch) {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw EngineError(ErrorCode::io, "mapping a shared page failed");
    shared_ = new (memory) Shared{};
    limits_ = value_or_throw(cu::limits_of_arch(settings.arch));
    for (const MlaCell& cell : cells_)
      for (int layout = 0; layout < kLayouts; ++layout)
        candidates_.push_back(mla_candidates(cell, layout, limits_));
  }

  int all() {
    std::filesystem::remove(settings_.out);
    compile_missing({});
    guarded(
        {Item{}}, [this](MlaBench& bench, const Item&) { measure_card(bench); },
        [](const Item&, const std::string&) {});
    // The telling cells from screening to finals, then the others: what is cut off matters least.
    for (const auto& [first, last] :
         {std::pair{std::size_t{0}, kTellingCells}, {kTellingCells, cells_.size()}}) {
      std::vector<Item> screen;
      for (std::size_t cell = first; cell < last; ++cell) {
        if (cells_[cell].name().find(settings_.only) == std::string::npos) continue;
        const auto& all = candidates_of(cell, 0);
        const std::size_t step =
            cell < kTellingCells ? 1 : (all.size() + kMostScreened - 1) / kMostScreened;
        for (std::size_t i = 0; i < all.size(); ++i)
          if (i % step == 0 || all[i].variant.family != all[0].variant.family)
            screen.push_back({cell, 0, i});
      }
      // The last seconds belong to the finals of what was screened.
      measure_items(screen, "screen", settings_.seconds - (first == 0 ? 0 : 45));
      fmt::print(stderr, "mla_bench: {} candidates after {} s\n", screen.size(), elapsed_s());
      measure_items(finalists(first, last), "final", settings_.seconds);
      fmt::print(stderr, "mla_bench: finals after {} s\n", elapsed_s());
    }
    print_mla_table(results_, cells_);
    const auto rows = results_.rows();
    const bool good = !rows.empty() && std::all_of(rows.begin(), rows.end(), [](const MlaRow& row) {
      return row.error.empty();
    });
    return good ? 0 : 1;
  }

 private:
  static constexpr int kLayouts = 3;

  const std::vector<MlaCandidate>& candidates_of(std::size_t cell, int layout) const {
    return candidates_[cell * kLayouts + static_cast<std::size_t>(layout)];
  }
  long elapsed_s() const {
    return std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - start_).count();
  }

  MlaRow row_of(const Item& item, const char* stage) const {
    const MlaCandidate& candidate = candidates_of(item.cell, item.layout)[item.candidate];
    return {.stage = stage,
            .cell = item.cell,
            .layout = item.layout,
            .candidate = item.candidate,
            .is_default = candidate.is_default && item.layout == 0,
            .brief = candidate.brief(),
            .error = {}};
  }

  void measure_card(MlaBench& bench) {
    const auto& device = bench.context().device();
    if (device.sm_count != limits_.sm_count) {
      throw EngineError(ErrorCode::unsupported,
                        fmt::format("{} has {} multiprocessors, candidates were made for {}",
                                    device.name, device.sm_count, limits_.sm_count));
    }
    results_.add(MlaCard{device.name, bench.empty_node_us(), bench.cold_reads()});
  }

  /// Compiles what the folder lacks, with all cores; in a process of its own, because a process
  /// that has compiled leaves children in which the driver does not start.
  void compile_missing(const std::vector<Item>& items) {
    std::vector<jit::Variant> variants = fixed_variants(limits_);
    for (const Item& item : items)
      variants.push_back(candidates_of(item.cell, item.layout)[item.candidate].variant);
    std::set<std::string> seen;
    std::erase_if(variants, [&](const jit::Variant& variant) {
      return !seen.insert(jit::describe(variant)).second || folder_.load(variant).has_value();
    });
    if (variants.empty()) return;
    const pid_t child = fork();
    if (child < 0) throw EngineError(ErrorCode::io, "fork failed");
    if (child == 0) {
      try {
        jit::NvrtcCompiler compiler = open_compiler();
        (void)folder_.fill(compiler, variants,
                           static_cast<int>(std::thread::hardware_concurrency()));
        _exit(0);
      } catch (const std::exception& error) {
        fmt::print(stderr, "mla_bench: {}\n", error.what());
        _exit(3);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    fmt::print(stderr, "mla_bench: {} variants compiled, {} s\n", variants.size(), elapsed_s());
  }

  void measure_items(const std::vector<Item>& items, const char* stage, long until_s) {
    compile_missing(items);
    const bool thoroughly = std::string_view(stage) == "final";
    std::size_t entered = cells_.size();
    guarded(
        items,
        [&, entered](MlaBench& bench, const Item& item) mutable {
          if (entered != item.cell) {
            bench.enter(cells_[entered = item.cell]);
            if (!thoroughly) results_.add_simt(item.cell, bench.simt_us());
          }
          const MlaCandidate& candidate = candidates_of(item.cell, item.layout)[item.candidate];
          const MlaOutcome outcome = bench.run(candidate, thoroughly);
          MlaRow row = row_of(item, stage);
          row.error = outcome.error;
          row.relative_error = outcome.relative_error;
          row.us = outcome.timing.median_us;
          row.min_us = outcome.timing.min_us;
          row.spread = outcome.timing.spread;
          if (outcome.early) row.early_us = outcome.early->median_us;
          if (!row.error.empty())
            fmt::print(stderr, "{} {}: {}\n", cells_[item.cell].name(), row.brief, row.error);
          results_.add(row, cells_[item.cell], candidate);
        },
        [&](const Item& item, const std::string& why) {
          MlaRow row = row_of(item, stage);
          row.error = why;
          fmt::print(stderr, "{} {}: {}\n", cells_[item.cell].name(), row.brief, row.error);
          results_.add(row, cells_[item.cell],
                       candidates_of(item.cell, item.layout)[item.candidate]);
        },
        until_s);
  }

  /// The fastest of each cell, the fastest of the other family, the default; and the fastest's
  /// parameters in the other layouts.
  std::vector<Item> finalists(std::size_t first, std::size_t last) const {
    std::vector<MlaRow> rows = results_.rows();
    std::erase_if(rows, [&](const MlaRow& row) {
      return !row.error.empty() || row.stage != "screen" || row.cell < first || row.cell >= last;
    });
    std::sort(rows.begin(), rows.end(),
              [](const MlaRow& a, const MlaRow& b) { return a.us < b.us; });
    std::map<std::size_t, std::size_t> taken;
    std::map<std::pair<std::size_t, std::string>, int> families;
    std::vector<Item> items;
    for (const MlaRow& row : rows) {
      const std::string& family = candidates_of(row.cell, 0)[row.candidate].variant.family;
      const std::size_t place = taken[row.cell]++;
      if (place < kFinalists || families[{row.cell, family}] == 0 || row.is_default)
        items.push_back({row.cell, 0, row.candidate});
      ++families[{row.cell, family}];
      if (place == 0)
        for (int layout = 1; layout < layouts_of(row.cell); ++layout)
          items.push_back({row.cell, layout, row.candidate});
    }
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return a.cell < b.cell; });
    return items;
  }

  /// Calls `work` for every item in child processes; a new one takes over behind an item that was
  /// lost. `lost` is called for that item.
  template <class Work, class Lost>
  void guarded(const std::vector<Item>& items, Work work, Lost lost, long until_s = 100'000) {
    std::size_t from = 0;
    while (from < items.size() && elapsed_s() < until_s) {
      shared_->at = from;
      ++shared_->sign;
      const pid_t child = fork();
      if (child < 0) throw EngineError(ErrorCode::io, "fork failed");
      if (child == 0) _exit(child_main(items, from, work, until_s));
      const std::string why = watch(child);
      from = shared_->at;
      if (why.empty() || from >= items.size()) return;
      lost(items[from], why);
      ++from;
      if (++lost_children_ > kMostLostChildren) {
        fmt::print(stderr, "mla_bench: too many candidates lost, stopping\n");
        return;
      }
    }
  }

  template <class Work>
  int child_main(const std::vector<Item>& items, std::size_t from, Work& work, long until_s) {
    try {
      MlaBench bench(value_or_throw(cu::DriverApi::open(library_directories())), folder_);
      for (std::size_t i = from; i < items.size() && elapsed_s() < until_s; ++i) {
        shared_->at = i;
        ++shared_->sign;
        work(bench, items[i]);
      }
      shared_->at = items.size();
      return 0;
    } catch (const std::exception& error) {
      fmt::print(stderr, "mla_bench: {}\n", error.what());
      return 3;
    }
  }

  /// Waits for the child; empty when it ended well, otherwise why not.
  std::string watch(pid_t child) const {
    std::int64_t sign = shared_->sign;
    auto heard = steady_clock::now();
    while (true) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) == child) {
        if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? "" : "driver error";
        return fmt::format("killed by signal {}", WTERMSIG(status));
      }
      if (shared_->sign != sign) {
        sign = shared_->sign;
        heard = steady_clock::now();
      }
      if (steady_clock::now() - heard > kPatience) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return fmt::format("hangs: no sign of life for {} s", kPatience.count());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  const Settings& settings_;
  MlaResults results_;
  CubinFolder folder_;
  cu::DeviceLimits limits_;
  std::vector<MlaCell> cells_ = mla_cells();
  std::vector<std::vector<MlaCandidate>> candidates_;  // of each cell, by layout
  Shared* shared_ = nullptr;
  int lost_children_ = 0;
  steady_clock::time_point start_ = steady_clock::now();
};

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  CLI::App app("Measures the sparse MLA decode candidates beside FlashMLA's published times.");
  app.require_subcommand(1);
  auto* compile_command = app.add_subcommand("compile", "fill a folder with compiled candidates");
  auto* run_command = app.add_subcommand("run", "check and time them on this machine's first GPU");
  auto* table_command = app.add_subcommand("table", "print the table of a results file");
  for (auto* command : {compile_command, run_command}) {
    command->add_option("--cubins", settings.cubins, "folder of compiled candidates");
    command->add_option("--arch", settings.arch, "architecture");
  }
  for (auto* command : {run_command, table_command})
    command->add_option("--out", settings.out, "results, JSON lines");
  compile_command->add_option("--jobs", settings.jobs, "compilations side by side");
  run_command->add_option("--seconds", settings.seconds, "stop after this long");
  run_command->add_option("--only", settings.only, "cells whose name holds this: 'h8 B128'");
  CLI11_PARSE(app, argc, argv);
  if (compile_command->parsed()) return compile(settings);
  if (run_command->parsed()) return Run(settings).all();
  print_mla_table(MlaResults(settings.out), mla_cells());
  return 0;
} catch (const EngineError& error) {
  fmt::print(stderr, "mla_bench: {}\n{}", error.error().message, error.error().log);
  return exit_status(error.error().code);
} catch (const std::exception& error) {
  fmt::print(stderr, "mla_bench: {}\n", error.what());
  return 1;
}
