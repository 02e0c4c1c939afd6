#include "tuner/tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <set>
#include <thread>

#include "runtime/base/byte_stream.hpp"
#include "runtime/base/log.hpp"
#include "tuner/race.hpp"

namespace ingot {
namespace {

/// What a candidate's inputs are made of and what is timed; raised when either changes.
constexpr int kMethod = 2;

/// Compiles candidates in the order of the requests on threads of its own, so that a race finds
/// them ready. A kernel that both want is compiled once: the store sees to that.
class CompileAhead {
 public:
  CompileAhead(const std::vector<const TuningRequest*>& requests, const std::string& arch, int jobs,
               jit::KernelStore& kernels) {
    std::set<std::string> seen;
    for (const TuningRequest* request : requests) {
      for (std::size_t i = 0; i < request->candidates.size(); ++i) {
        const jit::Variant& variant = request->candidates[i];
        if (!seen.insert(fmt::format("{} {}", jit::describe(variant), i == 0)).second) continue;
        wanted_.push_back({.variant = variant, .arch = arch, .allow_spills = i == 0});
      }
    }
    for (int i = 0; i < jobs; ++i) {
      threads_.emplace_back([this, &kernels](const std::stop_token& stop) {
        for (std::size_t at = next_++; at < wanted_.size() && !stop.stop_requested(); at = next_++)
          compile(kernels, wanted_[at]);
      });
    }
  }

 private:
  /// What goes wrong is told by the race, when it asks for the same kernel.
  static void compile(jit::KernelStore& kernels, const jit::KernelRequest& request) {
    try {
      (void)kernels.get(request);
    } catch (const std::exception&) {
    }
  }

  std::vector<jit::KernelRequest> wanted_;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> threads_;  // joined before what they use goes
};

Standing standing_of(const CandidateTimes& candidate, std::size_t index, const Choice& choice) {
  if (index == choice.chosen) return Standing::chosen;
  if (candidate.barred) return Standing::barred;
  if (!candidate.time_us)
    return candidate.dropped_after > 0 ? Standing::dropped : Standing::unmeasured;
  if (std::find(choice.ties.begin(), choice.ties.end(), index) != choice.ties.end()) {
    return Standing::tie;
  }
  return candidate.dropped_after > 0 ? Standing::dropped : Standing::slower;
}

TuningRecord record_of(const TuningKey& key, const TuningRequest& request, const RaceResult& joined,
                       const Choice& choice, const std::vector<std::vector<double>>& samples_us) {
  TuningRecord record{.key = key,
                      .complete = joined.complete,
                      .noise = joined.noise,
                      .candidates = {},
                      .rejections = request.rejections};
  for (std::size_t i = 0; i < request.candidates.size(); ++i) {
    const CandidateTimes& found = joined.candidates[i];
    CandidateRecord candidate{.variant = request.candidates[i],
                              .standing = standing_of(found, i, choice),
                              .reason = found.reason,
                              .time_us = found.time_us.value_or(0),
                              .samples_us = samples_us[i]};
    if (candidate.standing == Standing::dropped) {
      candidate.reason = fmt::format("behind after round {}{}", found.dropped_after,
                                     found.time_us ? "" : ", not verified");
    }
    if (!candidate.samples_us.empty()) {
      const Timing timing = summarize(candidate.samples_us, 1);
      candidate.median_us = timing.median_us;
      candidate.spread = timing.spread;
    }
    record.candidates.push_back(std::move(candidate));
  }
  return record;
}

class Tuning {
 public:
  Tuning(std::span<const TuningRequest> requests, jit::KernelStore& kernels, Bench& bench,
         TuningStore& records, RankGroup& ranks, const TuneOptions& options)
      : requests_(requests),
        kernels_(kernels),
        bench_(bench),
        records_(records),
        ranks_(ranks),
        options_(options),
        start_s_(options.now_s()) {}

  TuneReport run() {
    plan();
    std::vector<const TuningRequest*> open;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (report_.requests[i].state == TuneState::left) open.push_back(&requests_[i]);
    }
    {
      const bool compile = ranks_.rank() == 0 && options_.budget_s > 0;
      const CompileAhead ahead(compile ? open : std::vector<const TuningRequest*>{},
                               options_.device.arch, compile ? options_.jobs : 0, kernels_);
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        if (report_.requests[i].state != TuneState::left) continue;
        if (!go_on()) break;
        tune_one(i);
      }
    }
    report_.seconds = options_.now_s() - start_s_;
    return std::move(report_);
  }

 private:
  double end_s() const { return start_s_ + options_.budget_s; }

  /// Rank 0 looks at its clock for all.
  bool go_on() {
    const bool go = options_.now_s() < end_s() && !options_.asked_to_end();
    return ranks_.broadcast(go ? "go" : "stop") == "go";
  }

  /// Which requests are open; of the others the outcome. Rank 0 looks them up for all.
  void plan() {
    for (const TuningRequest& request : requests_) {
      TunedRequest outcome{.title = request.title()};
      auto key = key_of(request, options_.device, options_.tp_size, options_.policy, kernels_);
      if (!key) {
        outcome.state = TuneState::failed;
        outcome.reason = key.error().message;
        keys_.emplace_back();
      } else {
        keys_.push_back(std::move(*key));
        if (request.candidates.size() == 1) outcome.state = TuneState::no_choice;
      }
      if (outcome.state == TuneState::left && !options_.retune) look_up(keys_.back(), outcome);
      report_.requests.push_back(std::move(outcome));
    }
  }

  void look_up(const TuningKey& key, TunedRequest& outcome) {
    std::string found;
    if (ranks_.rank() == 0) {
      const auto record = records_.find(key);
      if (record && record->complete) found = encode_record(*record);
    }
    found = ranks_.broadcast(found);
    if (found.empty()) return;
    outcome.record = value_or_throw(decode_record(found, "of rank 0"));
    outcome.state = TuneState::known;
  }

  void tune_one(std::size_t index) {
    const TuningRequest& request = requests_[index];
    TunedRequest& outcome = report_.requests[index];
    const RaceSetup setup{.request = request,
                          .arch = options_.device.arch,
                          .search = options_.search,
                          .now_s = options_.now_s,
                          .end_s = end_s(),
                          .asked_to_end = options_.asked_to_end,
                          .progress = [&](std::string_view step, std::size_t left) {
                            options_.progress({.request = index,
                                               .requests = requests_.size(),
                                               .title = outcome.title,
                                               .step = step,
                                               .candidates = request.candidates.size(),
                                               .candidates_left = left});
                          }};
    const double begin_s = options_.now_s();
    const Race race = run_race(setup, kernels_, bench_);
    outcome.seconds = options_.now_s() - begin_s;
    report_.spent += race.seconds;
    const RaceResult joined = agree(ranks_, race.result);
    const auto choice = choose_of(joined);
    if (!joined.failure.empty() || (!choice && joined.complete)) {
      outcome.state = TuneState::failed;
      outcome.reason = joined.failure.empty() ? "no candidate could be measured" : joined.failure;
      if (ranks_.rank() == 0) log::warn("tuning {}: {}", outcome.title, outcome.reason);
      return;
    }
    if (!choice) return;  // the budget ended before anything was measured
    outcome.record = record_of(keys_[index], request, joined, *choice, race.samples_us);
    outcome.state = joined.complete ? TuneState::tuned : TuneState::cut_short;
    if (ranks_.rank() == 0) (void)records_.save(*outcome.record);
  }

  const std::span<const TuningRequest> requests_;
  jit::KernelStore& kernels_;
  Bench& bench_;
  TuningStore& records_;
  RankGroup& ranks_;
  const TuneOptions& options_;
  const double start_s_;
  std::vector<TuningKey> keys_;  // by request
  TuneReport report_;
};

}  // namespace

std::string policy_text(const SearchPolicy& search, const MeasurePolicy& measure) {
  return fmt::format(
      "method {}; graph, {} to {} replays in batches of {} ({} beyond {:g} us) until {:g} % agree, "
      "{} for warm-up; {} to {} rounds, {:g} % behind drops",
      kMethod, measure.batch_replays, measure.max_replays, measure.batch_replays,
      measure.long_batch, measure.long_us, 100 * measure.good_spread, measure.warmup_replays,
      search.min_rounds, search.max_rounds, 100 * search.drop_behind);
}

int TuneReport::count(TuneState state) const {
  return static_cast<int>(
      std::count_if(requests.begin(), requests.end(),
                    [&](const TunedRequest& request) { return request.state == state; }));
}

std::string TuneReport::coverage() const {
  const int now = count(TuneState::tuned);
  const int before = count(TuneState::known);
  const int single = count(TuneState::no_choice);
  return fmt::format(
      "{} of {} kernels are tuned ({} now, {} before), {} cut short, {} left, {} failed; {} have "
      "no "
      "choice",
      now + before, static_cast<int>(requests.size()) - single, now, before,
      count(TuneState::cut_short), count(TuneState::left), count(TuneState::failed), single);
}

TuneReport tune(std::span<const TuningRequest> requests, jit::KernelStore& kernels, Bench& bench,
                TuningStore& records, RankGroup& ranks, const TuneOptions& options) {
  return Tuning(requests, kernels, bench, records, ranks, options).run();
}

}  // namespace ingot
