#include "tuner/race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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
    for (std::size_t i = 0; i < code_.size() && in_time("measuring", code_.size() - i); ++i)
      look_at(i);
    by_time_.resize(code_.size());
    std::iota(by_time_.begin(), by_time_.end(), std::size_t{0});
    std::erase_if(by_time_, [&](std::size_t i) { return race_.samples_us[i].empty(); });
    std::stable_sort(by_time_.begin(), by_time_.end(), [&](std::size_t a, std::size_t b) {
      return race_.samples_us[a].front() < race_.samples_us[b].front();
    });
    // Those that cannot win are not verified, unless all that could fall out in the race.
    while (!by_time_.empty() && !measure(take_leaders())) {
    }
    drop_rest();
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
    if (setup_.now_s() < setup_.end_s && !setup_.asked_to_end()) {
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
    const double begin_s = setup_.now_s();
    const Trial trial = bench_.enter(setup_.request, trial_kernel(0));
    race_.seconds.enter = setup_.now_s() - begin_s;
    if (trial.is_good()) return true;
    race_.result.failure = fmt::format("the reference variant {}: {}",
                                       jit::describe(setup_.request.candidates[0]), trial.reason);
    return false;
  }

  TrialKernel trial_kernel(std::size_t index) const {
    return {setup_.request.candidates[index], code_[index]->kernel.cubin};
  }

  /// Compiles a candidate and takes its first sample; one that fails keeps no code.
  void look_at(std::size_t index) {
    if (index > 0) {
      const double begin_s = setup_.now_s();
      const auto kernel = kernels_.get(kernel_request(index));
      race_.seconds.compile += setup_.now_s() - begin_s;
      if (!kernel) {
        // Barred by the store where it is to blame.
        const ErrorCode code = kernel.error().code;
        candidate(index).barred =
            code == ErrorCode::compile_failed || code == ErrorCode::unsupported;
        candidate(index).reason = reason_of(kernel.error().message);
        return;
      }
      code_[index] = *kernel;
    }
    const Trial trial = sample(index);
    if (trial.is_good()) {
      race_.samples_us[index].push_back(trial.time_us);
    } else {
      note_failure(index, trial);
    }
  }

  Trial sample(std::size_t index) {
    const double begin_s = setup_.now_s();
    Trial trial = bench_.measure(trial_kernel(index));
    race_.seconds.measure += setup_.now_s() - begin_s;
    if (trial.is_good() && !(trial.time_us > 0))
      trial = {.end = Trial::End::lost, .reason = "it took no time"};
    return trial;
  }

  /// Of those not yet taken the fastest that is right, and whoever is right and not too far behind
  /// it. Wrong ones on the way are out.
  std::vector<std::size_t> take_leaders() {
    std::vector<std::size_t> leaders;
    auto next = by_time_.begin();
    for (; next != by_time_.end(); ++next) {
      const std::size_t index = *next;
      const double time_us = race_.samples_us[index].front();
      if (!leaders.empty() &&
          time_us > race_.samples_us[leaders.front()].front() * (1 + setup_.search.drop_behind))
        break;
      if (index != 0 && !is_right(index, static_cast<std::size_t>(by_time_.end() - next))) {
        if (!race_.result.complete) break;
        continue;
      }
      leaders.push_back(index);
    }
    by_time_.erase(by_time_.begin(), next);
    std::sort(leaders.begin(), leaders.end());
    return leaders;
  }

  /// False too once the budget is spent.
  bool is_right(std::size_t index, std::size_t left) {
    if (!in_time("verifying", left)) return false;
    const double begin_s = setup_.now_s();
    Trial trial = bench_.verify(trial_kernel(index));
    // One that was looked at before may have written where it must not. Then the reference is not
    // what it was either, and both are made anew.
    if (trial.end == Trial::End::wrong && !bench_.verify(trial_kernel(0)).is_good()) {
      trial = bench_.enter(setup_.request, trial_kernel(0));
      if (trial.is_good()) {
        trial = bench_.verify(trial_kernel(index));
      } else {
        trial.end = Trial::End::lost;
      }
    }
    race_.seconds.verify += setup_.now_s() - begin_s;
    if (!trial.is_good()) note_failure(index, trial);
    return trial.is_good();
  }

  /// Those that were behind at the first look. Only of what is verified a time counts: of these,
  /// the reference.
  void drop_rest() {
    const auto& all = race_.result.candidates;
    const bool any = std::any_of(all.begin(), all.end(),
                                 [](const CandidateTimes& one) { return one.time_us.has_value(); });
    for (const std::size_t index : by_time_) {
      if (race_.result.complete || index == 0) candidate(index).dropped_after = 1;
      if (index == 0 && (race_.result.complete || any))
        candidate(0).time_us = race_.samples_us[0].front();
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

  /// Measures verified candidates in rounds, of which they have the first one behind them. False
  /// where none of them came through.
  bool measure(const std::vector<std::size_t>& racers) {
    if (!race_.result.complete) {
      // The budget is spent. Of the reference alone there is nothing to say.
      for (const std::size_t index : racers)
        if (racers.size() > 1 || index != 0)
          candidate(index).time_us = race_.samples_us[index].front();
      race_.result.noise = kLeastNoise;
      return true;
    }
    Search search(racers.size(), setup_.search, setup_.end_s - setup_.now_s());
    double before_s = setup_.now_s();
    while (const auto next = search.next()) {
      const std::size_t index = racers[*next];
      if (search.rounds() == 0) {
        search.add(race_.samples_us[index].front(), 0);
        continue;
      }
      setup_.progress("measuring", racers.size() - *next);
      const Trial trial = sample(index);
      const double after_s = setup_.now_s();
      if (trial.is_good()) {
        search.add(trial.time_us, after_s - before_s);
      } else {
        note_failure(index, trial);
        search.bar(after_s - before_s);
      }
      if (setup_.asked_to_end()) search.end();
      before_s = after_s;
    }
    race_.result.complete = race_.result.complete && search.complete();
    race_.result.noise = noise_of(search.courses());
    bool came_through = false;
    for (std::size_t i = 0; i < racers.size(); ++i) {
      const Course& course = search.courses()[i];
      race_.samples_us[racers[i]] = course.samples_us;
      if (course.barred || course.samples_us.empty()) continue;
      candidate(racers[i]).time_us = course.best_us();
      candidate(racers[i]).dropped_after = course.dropped_after;
      came_through = came_through || course.is_racing();
    }
    return came_through || !race_.result.complete;
  }

  const RaceSetup& setup_;
  jit::KernelStore& kernels_;
  Bench& bench_;
  std::vector<std::shared_ptr<const jit::CacheEntry>> code_;  // by candidate; null: out
  std::vector<std::size_t> by_time_;  // candidates that had a first look and nothing more
  Race race_;
};

}  // namespace

Race run_race(const RaceSetup& setup, jit::KernelStore& kernels, Bench& bench) {
  return Racing(setup, kernels, bench).run();
}

}  // namespace ingot
