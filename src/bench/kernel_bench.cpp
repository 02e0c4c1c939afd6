#include "src/bench/kernel_bench.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ingot {
namespace {

/// Rounds by turns over all that are right.
void take_samples(KernelCell& cell, const std::vector<TrialKernel>& code, Bench& bench,
                  int samples) {
  std::vector<double> most(cell.kernels.size());
  for (int round = 0; round < samples; ++round) {
    for (std::size_t i = 0; i < cell.kernels.size(); ++i) {
      TimedKernel& one = cell.kernels[i];
      if (!one.error.empty()) continue;
      const Trial trial = bench.measure(code[i]);
      if (!trial.is_good()) {
        one.error = trial.reason;
        continue;
      }
      most[i] = std::max(most[i], trial.time_us);
      one.us = one.us == 0 ? trial.time_us : std::min(one.us, trial.time_us);
      one.spread = one.us > 0 ? most[i] / one.us - 1 : 0;
    }
  }
}

/// The default first, then what runs, then the others where they are wanted.
std::vector<std::size_t> order_of(const TuningRequest& request, std::size_t running, bool all) {
  std::vector<std::size_t> order{0};
  if (running != 0) order.push_back(running);
  for (std::size_t i = 1; all && i < request.candidates.size(); ++i)
    if (i != running) order.push_back(i);
  return order;
}

}  // namespace

const TimedKernel* KernelCell::running() const {
  const auto found = std::find_if(kernels.rbegin(), kernels.rend(), [](const TimedKernel& one) {
    return !one.source.empty() && one.error.empty() && one.us > 0;
  });
  return found == kernels.rend() ? nullptr : &*found;
}

KernelCell measure_kernel(const TuningRequest& request, const Selection& selection, int tp_size,
                          jit::KernelStore& kernels, Bench& bench, const CardRates& rates,
                          const KernelBenchPolicy& policy) {
  KernelCell cell;
  cell.tp_size = tp_size;
  for (const std::string& family : request.families())
    cell.families += (cell.families.empty() ? "" : "+") + family;
  cell.problem = request.problem;
  cell.work = kernel_work(request.candidates[selection.candidate].family, request.problem);
  cell.floor_us = floor_us(cell.work, rates);
  std::vector<TrialKernel> code;
  for (const std::size_t index : order_of(request, selection.candidate, policy.all_candidates)) {
    TimedKernel one;
    one.variant = request.candidates[index];
    if (index == 0) one.source = source_name(Selection::Source::fallback);
    if (index == selection.candidate) one.source = source_name(selection.source);
    TrialKernel trial{.variant = one.variant, .cubin = {}};
    const auto entry =
        kernels.get({.variant = one.variant, .arch = policy.arch, .allow_spills = index == 0});
    if (entry) {
      trial.cubin = (*entry)->kernel.cubin;
    } else {
      one.error = entry.error().message;
    }
    if (index == 0) {
      cell.error = one.error;
      if (cell.error.empty()) cell.error = bench.enter(request, trial).reason;
      if (!cell.error.empty()) return cell;
    } else if (one.error.empty()) {
      one.error = bench.verify(trial).reason;
    }
    cell.kernels.push_back(std::move(one));
    code.push_back(std::move(trial));
  }
  take_samples(cell, code, bench, policy.samples);
  return cell;
}

}  // namespace ingot
