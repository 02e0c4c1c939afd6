#include "tuner/race.hpp"

#include <fmt/format.h>

#include "runtime/base/log.hpp"

namespace ingot {
namespace {

/// Without the kernel's name in front, which the record has already.
std::string reason_of(const std::string& message) {
  constexpr std::string_view kBarred = " is barred: ";
  const auto at = message.find(kBarred);
  return at == std::string::npos ? message : message.substr(at + kBarred.size());
}

class Racing {
 public:
  Racing(const RaceSetup& setup, jit::KernelStore& kernels, Bench& bench)
      : setup_(setup), kernels_(kernels), bench_(bench) {
    race_.result.candidates.resize(setup.request.candidates.size());
    race_.samples_us.resize(setup.request.candidates.size());
    code_.resize(setup.request.candidates.size());
  }

  Race run() {
    if (!enter()) return std::move(race_);
    for (std::size_t i = 1; i < code_.size() && in_time("verifying", code_.size() - i); ++i)
      admit(i);
    measure();
    return std::move(race_);
  }

 private:
  jit::KernelRequest kernel_request(std::size_t index) const {
    return {.variant = setup_.request.candidates[index],
            .arch = setup_.arch,
            .allow_spills = index == 0};
  }
  CandidateTimes& candidate(std::size_t index) { return race_.result.candidates[index]; }

  /// False, and the race is not complete, once the budget is spent.
  bool in_time(std::string_view step, std::size_t left) {
    if (setup_.now_s() < setup_.end_s) {
      setup_.progress(step, left);
      return true;
    }
    race_.result.complete = false;
    return false;
  }

  /// The reference variant, which is candidate 0.
  bool enter() {
    setup_.progress("compiling", code_.size());
    const auto kernel = kernels_.get(kernel_request(0));
    if (!kernel) {
      race_.result.failure = kernel.error().message;
      return false;
    }
    code_[0] = *kernel;
    const Trial trial = bench_.enter(setup_.request, trial_kernel(0));
    if (trial.is_good()) return true;
    race_.result.failure = fmt::format("the reference variant {}: {}",
                                       jit::describe(setup_.request.candidates[0]), trial.reason);
    return false;
  }

  TrialKernel trial_kernel(std::size_t index) const {
    return {setup_.request.candidates[index], code_[index]->kernel.cubin};
  }

  /// Compiles and verifies a candidate; one that fails keeps no code.
  void admit(std::size_t index) {
    const auto kernel = kernels_.get(kernel_request(index));
    if (!kernel) {
      // Barred by the store where it is to blame.
      const ErrorCode code = kernel.error().code;
      candidate(index).barred = code == ErrorCode::compile_failed || code == ErrorCode::unsupported;
      candidate(index).reason = reason_of(kernel.error().message);
      return;
    }
    code_[index] = *kernel;
    if (const Trial trial = bench_.verify(trial_kernel(index)); !trial.is_good()) {
      note_failure(index, trial);
    }
  }

  void note_failure(std::size_t index, const Trial& trial) {
    candidate(index).reason = trial.reason;
    code_[index] = nullptr;
    if (!trial.bars()) {
      log::warn("tuning {}: nothing is known of {}: {}", setup_.request.title(),
                jit::describe(setup_.request.candidates[index]), trial.reason);
      return;
    }
    candidate(index).barred = true;
    log::warn("tuning {}: {} is barred: {}", setup_.request.title(),
              jit::describe(setup_.request.candidates[index]), trial.reason);
    if (index == 0) return;  // it is what runs where nothing is tuned
    // Where it cannot be written down it is barred in this tuning all the same.
    (void)kernels_.bar(kernel_request(index), trial.reason);
  }

  void measure() {
    std::vector<std::size_t> racers;
    for (std::size_t i = 0; i < code_.size(); ++i) {
      if (code_[i]) racers.push_back(i);
    }
    Search search(racers.size(), setup_.search, setup_.end_s - setup_.now_s());
    double before_s = setup_.now_s();
    while (const auto next = search.next()) {
      const std::size_t index = racers[*next];
      setup_.progress("measuring", racers.size() - *next);
      const Trial trial = bench_.measure(trial_kernel(index));
      const double after_s = setup_.now_s();
      if (trial.is_good() && trial.time_us > 0) {
        search.add(trial.time_us, after_s - before_s);
      } else {
        note_failure(index, trial.is_good()
                                ? Trial{.end = Trial::End::lost, .reason = "it took no time"}
                                : trial);
        search.bar(after_s - before_s);
      }
      before_s = after_s;
    }
    race_.result.complete = race_.result.complete && search.complete();
    race_.result.noise = noise_of(search.courses());
    for (std::size_t i = 0; i < racers.size(); ++i) {
      const Course& course = search.courses()[i];
      race_.samples_us[racers[i]] = course.samples_us;
      if (course.barred || course.samples_us.empty()) continue;
      candidate(racers[i]).time_us = course.best_us();
      candidate(racers[i]).dropped_after = course.dropped_after;
    }
  }

  const RaceSetup& setup_;
  jit::KernelStore& kernels_;
  Bench& bench_;
  std::vector<std::shared_ptr<const jit::CacheEntry>> code_;  // by candidate; null: out
  Race race_;
};

}  // namespace

Race run_race(const RaceSetup& setup, jit::KernelStore& kernels, Bench& bench) {
  return Racing(setup, kernels, bench).run();
}

}  // namespace ingot
