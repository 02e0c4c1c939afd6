#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "runtime/jit/kernel_store.hpp"
#include "src/bench/bench_report.hpp"
#include "src/bench/card_rates.hpp"
#include "tuner/selection.hpp"
#include "tuner/trial.hpp"

namespace ingot {

/// What a kernel has to do at least for a problem: each input and output moved once, a weight or a
/// key of a row read once. Nothing is counted of families whose work is a few words a token.
struct KernelWork {
  double bytes = 0;
  double operations = 0;
  bool fp8 = false;  ///< multiplied at the rate of FP8
};
KernelWork kernel_work(const std::string& family, std::span<const ProblemField> problem);
/// The longer of reading cold and of multiplying, and at least an empty graph node.
double floor_us(const KernelWork& work, const CardRates& rates);

/// One variant on one problem, timed as the tuner times it.
struct TimedKernel {
  jit::Variant variant;
  std::string source;  ///< "default", "tuned", …; of candidates that do not run: empty
  std::string error;   ///< why it has no time: it is wrong, does not compile, …
  double us = 0;       ///< the least of several samples
  double spread = 0;   ///< of the samples: (greatest - least) / least
};

struct KernelCell {
  int tp_size = 1;
  std::string families;
  std::vector<ProblemField> problem;
  std::string error;                 ///< why none of it was measured
  std::vector<TimedKernel> kernels;  ///< the default first, then what runs, then the others
  KernelWork work;
  double floor_us = 0;

  const TimedKernel* running() const;  ///< what a step launches; null where it has no time
};

struct KernelBenchPolicy {
  std::string arch;
  int samples = 5;
  bool all_candidates = false;
};

/// Checks the default against itself and what runs against the default on every edge case, then
/// times both by turns; with `all_candidates` all others too.
KernelCell measure_kernel(const TuningRequest& request, const Selection& selection, int tp_size,
                          jit::KernelStore& kernels, Bench& bench, const CardRates& rates,
                          const KernelBenchPolicy& policy);

/// A line for each cell, below it with all candidates a line for each of them.
void print_kernels(std::span<const KernelCell> cells, std::FILE* out);
/// One line of JSON without a newline.
std::string kernel_json(const BenchSubject& subject, const KernelCell& cell);
std::vector<RooflinePoint> roofline_points(std::span<const KernelCell> cells);

}  // namespace ingot
