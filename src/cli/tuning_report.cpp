#include "src/cli/tuning_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "src/cli/json_line.hpp"
#include "tuner/family_gains.hpp"
#include "tuner/tuning_comparison.hpp"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const StepBucket& bucket) {
  return bucket.sequence_rows > 1
             ? fmt::format("{} tokens of a prompt within {}", bucket.rows, bucket.context)
             : fmt::format("batch {} at {}", bucket.rows, bucket.context);
}

struct FamilySeconds {
  int kernels = 0;
  double seconds = 0;
};
std::map<std::string, FamilySeconds> seconds_by_family(const TuneReport& report) {
  std::map<std::string, FamilySeconds> all;
  for (const TunedRequest& request : report.requests) {
    if (request.seconds <= 0) continue;
    FamilySeconds& one = all[request.title.substr(0, request.title.find(' '))];
    ++one.kernels;
    one.seconds += request.seconds;
  }
  return all;
}

std::vector<std::string> titles_of(const TuneReport& report, TuneState state) {
  std::vector<std::string> titles;
  for (const TunedRequest& request : report.requests)
    if (request.state == state) titles.push_back(request.title);
  return titles;
}

}  // namespace

std::string some_titles(const std::vector<std::string>& titles) {
  constexpr std::size_t kNamed = 4;
  const std::size_t named = std::min(titles.size(), kNamed);
  std::string text = fmt::format(
      "{}", fmt::join(titles.begin(), titles.begin() + static_cast<std::ptrdiff_t>(named), "; "));
  if (named < titles.size()) text += fmt::format("; and {} more", titles.size() - named);
  return text;
}

std::string titles_by_family(const std::vector<std::string>& titles) {
  std::map<std::string, int> counts;
  for (const std::string& title : titles)
    ++counts[title.substr(0, title.find(' '))];
  std::string text;
  for (const auto& [family, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", family, count);
  return text;
}

std::vector<std::optional<TuningRecord>> records_before(const CardTuning& tuning,
                                                        const jit::KernelStore& kernels,
                                                        TuningStore& records) {
  std::vector<std::optional<TuningRecord>> found;
  const auto plan = value_or_throw(
      trials::tuning_plan(tuning.config, tuning.tp_size, tuning.buckets, tuning.card.limits));
  for (const TuningRequest& request : plan.requests) {
    const auto key = key_of(request, tuning.card.device, tuning.tp_size,
                            policy_text(SearchPolicy{}, MeasurePolicy{}), kernels);
    auto record = key ? records.find(*key) : std::nullopt;
    if (record && !record->complete) record.reset();
    found.push_back(std::move(record));
  }
  return found;
}

void print_coverage(const CardTuned& tuned, const Card& card, bool json, std::FILE* out) {
  const TuneReport& report = tuned.report;
  const RaceSeconds& spent = report.spent;
  if (json) {
    Json line{{"device", card.device.name},
              {"tuned", report.count(TuneState::tuned)},
              {"known", report.count(TuneState::known)},
              {"cut_short", report.count(TuneState::cut_short)},
              {"left", report.count(TuneState::left)},
              {"failed", report.count(TuneState::failed)},
              {"no_choice", report.count(TuneState::no_choice)},
              {"collective", tuned.plan.collectives.size()},
              {"seconds", report.seconds}};
    line["titles_left"] = titles_of(report, TuneState::left);
    line["titles_cut_short"] = titles_of(report, TuneState::cut_short);
    line["spent"] = {{"compiling", spent.compile},
                     {"entering", spent.enter},
                     {"measuring", spent.measure},
                     {"verifying", spent.verify}};
    for (const auto& [families, one] : seconds_by_family(report))
      line["families"][families] = {{"kernels", one.kernels}, {"seconds", one.seconds}};
    fmt::print(out, "{}\n", json_line(line));
    return;
  }
  fmt::print(out, "{}: {}, in {:.0f} s\n", card.device.name, report.coverage(), report.seconds);
  if (const auto left = titles_of(report, TuneState::left); !left.empty())
    fmt::print(out, "left when the time was over: {}\n", some_titles(left));
  if (const auto cut = titles_of(report, TuneState::cut_short); !cut.empty())
    fmt::print(out, "cut short when the time was over: {}\n", some_titles(cut));
  if (report.count(TuneState::tuned) + report.count(TuneState::cut_short) > 0) {
    fmt::print(out,
               "of this {:.1f} s waiting for the compiler, {:.1f} s making inputs and references, "
               "{:.1f} s measuring, {:.1f} s verifying\n",
               spent.compile, spent.enter, spent.measure, spent.verify);
  }
  if (report.requests.size() == tuned.plan.requests.size() && !tuned.plan.collectives.empty()) {
    std::vector<std::string> collectives;
    for (const TuningRequest& request : tuned.plan.collectives)
      collectives.push_back(request.title());
    fmt::print(out,
               "not tuned, as it takes the cards of all ranks: {}; they run with their defaults\n",
               titles_by_family(collectives));
  }
}

void print_gains(std::span<const TuningRecord> records, bool json, std::FILE* out) {
  if (records.empty()) return;
  for (const TuningRecord& record : records) {
    const CandidateRecord& first = record.candidates.front();
    const CandidateRecord& chosen = record.chosen();
    if (json) {
      const Json line{{"tuning", record.key.title()}, {"default", jit::describe(first.variant)},
                      {"default_us", first.time_us},  {"chosen", jit::describe(chosen.variant)},
                      {"chosen_us", chosen.time_us},  {"gain", record.gain()},
                      {"spread", chosen.spread},      {"noise", record.noise},
                      {"complete", record.complete}};
      fmt::print(out, "{}\n", json_line(line));
    } else if (&first != &chosen) {
      fmt::print(out, "{}: {} {:.2f} us -> {} {:.2f} us\n", record.key.title(),
                 jit::describe(first.variant), first.time_us, jit::describe(chosen.variant),
                 chosen.time_us);
    }
  }
  if (!json) fmt::print(out, "{}", gains_table(family_gains(records)));
}

void print_comparison(const CardTuned& tuned,
                      const std::vector<std::optional<TuningRecord>>& before, bool json,
                      std::FILE* out) {
  const auto& requests = tuned.report.requests;
  int compared = 0, changed = 0, ties = 0;
  const auto both = [&](std::size_t i) {
    return i < before.size() && before[i] && requests[i].state == TuneState::tuned;
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!both(i)) continue;
    ++compared;
    const auto change = compare_choices(*before[i], *requests[i].record);
    if (!change) continue;
    ++changed;
    ties += change->tie ? 1 : 0;
    if (json) {
      const Json line{{"retuned", change->title},
                      {"before", change->before},
                      {"after", change->after},
                      {"tie", change->tie},
                      {"ratio", change->ratio}};
      fmt::print(out, "{}\n", json_line(line));
    } else {
      fmt::print(out, "retuned {}: {} -> {}, {}, {:.3f} of its time\n", change->title,
                 change->before, change->after, change->tie ? "a tie" : "NOT a listed tie",
                 change->ratio);
    }
  }
  if (compared == 0) return;
  double least = 1, most = 1;
  for (const auto& step : tuned.plan.steps) {
    std::vector<LaunchedTunings> launched;
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (both(i) && i < step.launches.size() && step.launches[i] > 0)
        launched.push_back({&*before[i], &*requests[i].record, step.launches[i]});
    const double ratio = step_ratio(launched);
    least = std::min(least, ratio);
    most = std::max(most, ratio);
    if (json) {
      const Json line{{"step", text_of(step.bucket)}, {"ratio", ratio}};
      fmt::print(out, "{}\n", json_line(line));
    } else if (std::abs(ratio - 1) >= 0.0005) {
      fmt::print(out, "a step of {}: {:.4f} of its time before\n", text_of(step.bucket), ratio);
    }
  }
  if (json) {
    const Json line{{"compared", compared},
                    {"changed", changed},
                    {"ties", ties},
                    {"least_ratio", least},
                    {"most_ratio", most}};
    fmt::print(out, "{}\n", json_line(line));
  } else {
    fmt::print(out,
               "{} kernels tuned again: {} choices differ from those before, {} of them listed "
               "ties; steps take {:.4f} to {:.4f} of their time\n",
               compared, changed, ties, least, most);
  }
}

}  // namespace ingot
