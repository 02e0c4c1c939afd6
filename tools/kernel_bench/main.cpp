// Measures every candidate of the FP8 linears on every cell of the published comparison, each
// checked against the CPU reference first. For developers; what users run is `ingot bench`.
//   kernel_bench compile --cubins DIR [--arch sm_90a] [--jobs N] [--nvrtc DIR]   no GPU needed
//     --index I compiles one variant only, for many processes side by side
//   kernel_bench run --cubins DIR --out FILE.jsonl [--seconds N]
//   kernel_bench table --out FILE.jsonl
// All take --only wq_b,wo_b:64,… for some linears or cells alone; compile and run take
// --candidate 'sm90 T64' for those that the table names so, to profile one of them, say.
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

#include "kernel_templates/act_quant.space.hpp"
#include "kernel_templates/memory_read.space.hpp"
#include "runtime/jit/nvrtc_compiler.hpp"
#include "tools/kernel_bench/results.hpp"

using namespace ingot;
using namespace ingot::bench;
using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kPatience{12};  // without a sign of life
constexpr int kMostLostChildren = 8;
constexpr std::size_t kFinalists = 3;  // of each cell and kind of input

struct Settings {
  std::filesystem::path cubins = "cubins";
  std::filesystem::path out = "kernel_bench.jsonl";
  std::string arch = "sm_90a";
  std::vector<std::string> only;
  std::string candidate;  // the beginning of Candidate::brief()
  std::vector<std::filesystem::path> nvrtc;
  int jobs = 2;
  int index = -1;
  int seconds = 240;
};

struct Item {
  std::size_t cell = 0;
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

int compile(const Settings& settings) {
  const auto limits = value_or_throw(cu::limits_of_arch(settings.arch));
  std::vector<jit::Variant> variants;
  std::set<std::string> seen;
  const auto want = [&](const jit::Variant& variant) {
    if (seen.insert(jit::describe(variant)).second) variants.push_back(variant);
  };
  for (const Cell& cell : cells()) {
    if (!is_wanted(cell, settings.only)) continue;
    for (const Candidate& candidate : candidates(cell, limits))
      if (candidate.brief().starts_with(settings.candidate)) want(candidate.variant);
  }
  want({std::string(kernels::ActQuant::kStem), jit::param_values(kernels::ActQuant::Params{})});
  for (const auto& params : kernels::MemoryRead::space({}, limits).candidates())
    want({std::string(kernels::MemoryRead::kStem), jit::param_values(params)});
  const std::size_t count = variants.size();
  const CubinFolder folder(settings.cubins, settings.arch);
  if (settings.index >= 0) {
    const auto index = static_cast<std::size_t>(settings.index);
    if (index >= count || folder.load(variants[index])) return 0;
    variants = {variants[index]};
  }
  auto directories = settings.nvrtc;
  for (const auto& directory : library_directories())
    directories.push_back(directory);
  jit::NvrtcCompiler compiler(
      value_or_throw(jit::NvrtcApi::open(value_or_throw(jit::find_nvrtc(directories)))));
  const auto report = folder.fill(compiler, variants, settings.jobs);
  if (settings.index >= 0) return report.failed.empty() ? 0 : 1;
  fmt::print("kernel_bench: {} variants for {}: {} compiled, {} kept, {} failed or spilling\n",
             count, settings.arch, report.compiled, report.kept, report.failed.size());
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
    // The whole card is decided by its architecture here; a smaller card of it is refused below.
    limits_ = value_or_throw(cu::limits_of_arch(settings.arch));
    for (const Cell& cell : cells())
      candidates_.push_back(candidates(cell, limits_));
  }

  int all() {
    std::filesystem::remove(settings_.out);
    guarded(
        {Item{}}, [this](LinearBench& bench, const Item&) { measure_card(bench); },
        [](const Item&, const std::string&) {});
    std::vector<Item> screen;
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      if (!is_wanted(cells_[cell], settings_.only)) continue;
      for (std::size_t i = 0; i < candidates_[cell].size(); ++i) {
        if (candidates_[cell][i].brief().starts_with(settings_.candidate))
          screen.push_back({cell, i});
      }
    }
    measure_items(screen, "screen");
    fmt::print(stderr, "kernel_bench: screened {} candidates after {} s\n", screen.size(),
               elapsed_s());
    measure_items(finalists(), "final");
    fmt::print(stderr, "kernel_bench: finished after {} s\n", elapsed_s());
    const auto rows = results_.rows();
    print_table(rows, results_.card(), cells_, settings_.only);
    const bool good = !rows.empty() && std::all_of(rows.begin(), rows.end(), [](const Row& row) {
      return row.error.empty();
    });
    return good ? 0 : 1;
  }

 private:
  long elapsed_s() const {
    return std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - start_).count();
  }

  Row row_of(const Item& item, const char* stage) const {
    const Candidate& candidate = candidates_[item.cell][item.candidate];
    return {.stage = stage,
            .cell = item.cell,
            .candidate = item.candidate,
            .x_bf16 = candidate.x_bf16,
            .brief = candidate.brief(),
            .error = {}};
  }

  void measure_card(LinearBench& bench) {
    Card card{.name = bench.context().device().name,
              .empty_node_us = bench.empty_node_us(),
              .curve = bench.cold_reads(),
              .act_quant_us = {}};
    if (bench.context().device().sm_count != limits_.sm_count) {
      throw EngineError(
          ErrorCode::unsupported,
          fmt::format("{} has {} multiprocessors, candidates were made for {}", card.name,
                      bench.context().device().sm_count, limits_.sm_count));
    }
    for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
      if (!is_wanted(cells_[cell], settings_.only)) {
        card.act_quant_us.push_back(0);
        continue;
      }
      ++shared_->sign;
      bench.enter(cells_[cell]);
      try {
        card.act_quant_us.push_back(bench.act_quant_us());
      } catch (const EngineError& error) {
        if (error.error().code != ErrorCode::corrupt) throw;
        fmt::print(stderr, "kernel_bench: {}\n", error.what());
        card.act_quant_us.push_back(0);
      }
    }
    results_.add(card);
  }

  void measure_items(const std::vector<Item>& items, const char* stage) {
    const bool thoroughly = std::string_view(stage) == "final";
    std::size_t entered = cells_.size();
    guarded(
        items,
        [&, entered](LinearBench& bench, const Item& item) mutable {
          if (entered != item.cell) bench.enter(cells_[entered = item.cell]);
          const Candidate& candidate = candidates_[item.cell][item.candidate];
          const Outcome outcome = bench.run(candidate, thoroughly);
          Row row = row_of(item, stage);
          row.error = outcome.error;
          results_.add(row, cells_[item.cell], candidate, outcome);
        },
        [&](const Item& item, const std::string& why) {
          Row row = row_of(item, stage);
          row.error = why;
          results_.add_failure(row, cells_[item.cell], candidates_[item.cell][item.candidate]);
        });
  }

  /// The fastest of each cell and kind of input, and the fastest of each family among them.
  std::vector<Item> finalists() const {
    std::vector<Row> rows = results_.rows();
    std::erase_if(rows, [](const Row& row) { return !row.error.empty(); });
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.us < b.us; });
    std::map<std::pair<std::size_t, bool>, std::size_t> taken;
    std::vector<Item> items;
    for (const Row& row : rows) {
      if (taken[{row.cell, row.x_bf16}]++ < kFinalists) items.push_back({row.cell, row.candidate});
    }
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return a.cell < b.cell; });
    return items;
  }

  /// Calls `work` for every item in child processes; a new one takes over behind an item that was
  /// lost. `lost` is called for that item.
  template <class Work, class Lost>
  void guarded(const std::vector<Item>& items, Work work, Lost lost) {
    std::size_t from = 0;
    while (from < items.size() && elapsed_s() < settings_.seconds) {
      shared_->at = from;
      ++shared_->sign;
      const pid_t child = fork();
      if (child < 0) throw EngineError(ErrorCode::io, "fork failed");
      if (child == 0) _exit(child_main(items, from, work));
      const std::string why = watch(child);
      from = shared_->at;
      if (why.empty() || from >= items.size()) return;
      fmt::print(stderr, "kernel_bench: item {} of {}: {}\n", from, items.size(), why);
      lost(items[from], why);
      ++from;
      if (++lost_children_ > kMostLostChildren) {
        fmt::print(stderr, "kernel_bench: too many candidates lost, stopping\n");
        return;
      }
    }
  }

  template <class Work>
  int child_main(const std::vector<Item>& items, std::size_t from, Work& work) {
    try {
      LinearBench bench(value_or_throw(cu::DriverApi::open(library_directories())), folder_);
      for (std::size_t i = from; i < items.size() && elapsed_s() < settings_.seconds; ++i) {
        shared_->at = i;
        ++shared_->sign;
        work(bench, items[i]);
      }
      shared_->at = items.size();
      return 0;
    } catch (const std::exception& error) {
      fmt::print(stderr, "kernel_bench: {}\n", error.what());
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
  ResultsFile results_;
  CubinFolder folder_;
  cu::DeviceLimits limits_;
  std::vector<Cell> cells_ = cells();
  std::vector<std::vector<Candidate>> candidates_;
  Shared* shared_ = nullptr;
  int lost_children_ = 0;
  steady_clock::time_point start_ = steady_clock::now();
};

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  CLI::App app("Measures the FP8 linears' candidates beside DeepGEMM's published times.");
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
  compile_command->add_option("--index", settings.index, "compile this one variant only");
  compile_command->add_option("--nvrtc", settings.nvrtc, "folders of NVRTC");
  for (auto* command : {compile_command, run_command})
    command->add_option("--candidate", settings.candidate, "those whose short name begins so");
  run_command->add_option("--seconds", settings.seconds, "stop after this long");
  for (auto* command : {compile_command, run_command, table_command})
    command->add_option("--only", settings.only, "linears or cells, as wq_b,wo_b:64")
        ->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  if (compile_command->parsed()) return compile(settings);
  if (run_command->parsed()) return Run(settings).all();
  const ResultsFile results(settings.out);
  print_table(results.rows(), results.card(), cells(), settings.only);
  return 0;
} catch (const EngineError& error) {
  fmt::print(stderr, "kernel_bench: {}\n{}", error.error().message, error.error().log);
  return exit_status(error.error().code);
} catch (const std::exception& error) {
  fmt::print(stderr, "kernel_bench: {}\n", error.what());
  return 1;
}
