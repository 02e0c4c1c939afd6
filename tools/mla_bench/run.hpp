#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tools/mla_bench/protocol.hpp"
#include "tools/mla_bench/results.hpp"
#include "tuner/child_process.hpp"

namespace ingot::bench {

/// Measures the comparison, cell by cell: every candidate shortly, then the best few thoroughly.
/// Everything that needs a GPU happens in a child process; this one loads neither driver nor
/// compiler. Each result is in the results file, and each finished cell on the screen, before the
/// next begins: a run that is cut off loses nothing.
class MlaRun {
 public:
  struct Settings {
    std::filesystem::path out = "mla_bench.jsonl";
    std::string arch = "sm_90a";
    std::string only;  ///< cells whose name holds this
    bool all = false;  ///< screen every candidate, not a sample
    int seconds = 100;
    ChildProcess::Options child;
    /// Compiles what is missing of these; called with all variants of a stage before it begins.
    std::function<void(const std::vector<jit::Variant>&)> prepare;
  };
  explicit MlaRun(const Settings& settings);

  /// True when all that was measured agreed with the reference.
  bool all();

 private:
  struct Item {
    std::size_t cell = 0;
    int layout = 0;
    std::size_t candidate = 0;
  };
  const std::vector<MlaCandidate>& candidates_of(std::size_t cell, int layout) const;
  double elapsed_s() const;
  bool time_is_up() const { return elapsed_s() >= settings_.seconds || gave_up_; }
  bool wanted(std::size_t cell) const;

  bool measure_card();
  void measure_cell(std::size_t cell);
  void compare_layouts(std::size_t cells);
  void measure(const Item& item, bool thoroughly);
  std::vector<std::size_t> screened(std::size_t cell) const;
  std::vector<Item> finalists(std::size_t cell) const;
  std::vector<MlaRow> good_rows(std::size_t cell, std::string_view stage) const;

  const Settings& settings_;
  MlaResults results_;
  ChildProcess child_;
  cu::DeviceLimits limits_;
  std::vector<MlaCell> cells_ = mla_cells();
  std::vector<std::vector<MlaCandidate>> candidates_;  // of each cell, by layout
  std::vector<MlaRow> rows_;
  std::set<std::pair<int, std::string>> winners_;  // heads; variant
  bool gave_up_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Body of the measuring process: answers questions on `channel` with this machine's first GPU.
int serve_mla_bench(int channel, const std::filesystem::path& cubins, const std::string& arch);

std::vector<std::filesystem::path> library_directories();

}  // namespace ingot::bench
