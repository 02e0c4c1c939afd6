#include "src/cli/prewarm_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "kernel_templates/family.hpp"
#include "runtime/base/log.hpp"
#include "runtime/jit/arch.hpp"
#include "src/cli/kernel_overrides.hpp"
#include "src/cli/local_cards.hpp"
#include "src/plan/kernel_requests.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tuner/look_up.hpp"
#include "tuner/tune.hpp"

namespace ingot {
namespace {

std::vector<Card> cards_here(const PrewarmOptions& options) {
  auto cards = local_cards(options.cache);
  if (cards) return std::move(*cards);
  if (cards.error().code != ErrorCode::not_found) throw EngineError(std::move(cards.error()));
  throw EngineError(ErrorCode::invalid_argument,
                    fmt::format("which architecture to compile for is not known: name it with "
                                "--arch sm_NN (this machine shows no card: {})",
                                cards.error().message));
}

class Planning {
 public:
  Planning(const PrewarmOptions& options, const jit::KernelStore& kernels, TuningStore& records)
      : options_(options),
        kernels_(kernels),
        records_(records),
        config_(value_or_throw(read_model_config(options.config_json))),
        overrides_(value_or_throw(read_overrides(options.pins, options.disabled))) {}

  PrewarmPlan run() {
    std::map<std::string, std::vector<Card>> cards;  // by architecture
    for (const std::string& name : options_.archs) {
      const std::string arch = value_or_throw(jit::parse_arch(name));
      cards[arch] = value_or_throw(recorded_cards(records_, arch, options_.tp_size));
    }
    if (options_.archs.empty()) {
      plan_.local = cards_here(options_);
      for (const Card& card : plan_.local)
        cards[card.device.arch].push_back(card);
    }
    for (const auto& [arch, of_arch] : cards) {
      plan_.archs.push_back(arch);
      // Without a card of its own an architecture is that of its largest.
      if (!options_.archs.empty()) add_uses(arch, value_or_throw(cu::limits_of_arch(arch)));
      for (const Card& card : of_arch)
        add_card(card);
    }
    plan_.config = config_;
    return std::move(plan_);
  }

 private:
  void add(const jit::Variant& variant, const std::string& arch, bool is_default) {
    if (!seen_.insert(arch + " " + jit::describe(variant)).second) return;
    plan_.kernels.push_back({.variant = variant, .arch = arch, .allow_spills = is_default});
  }

  bool is_disabled(const std::string& family) const {
    return std::find(overrides_.disabled.begin(), overrides_.disabled.end(), family) !=
           overrides_.disabled.end();
  }

  /// Defaults, what pins force, and with --all-candidates the rest.
  std::vector<KernelUse> add_uses(const std::string& arch, const cu::DeviceLimits& limits) {
    const PlanScope scope{.tp_size = options_.tp_size,
                          .batch_buckets = options_.batch_buckets,
                          .context_buckets = options_.context_buckets,
                          .disabled = overrides_.disabled};
    std::vector<KernelUse> uses = value_or_throw(kernel_uses(config_, scope, limits));
    std::vector<TuningRequest> requests;
    for (const KernelUse& use : uses)
      requests.push_back(use.tuning);
    for (const std::string& sentence : value_or_throw(overrides_.check(requests)))
      if (told_.insert(sentence).second) log::warn("{} for {}", sentence, arch);
    for (const KernelUse& use : uses) {
      for (const auto& set : use.families)
        if (!is_disabled(set.family)) add(set.candidates.front(), arch, true);
    }
    for (const KernelUse& use : uses) {
      const auto allowed = value_or_throw(overrides_.allowed(use.tuning));
      const Selection untuned = select(use.tuning, allowed, std::nullopt);
      add(use.tuning.candidates[untuned.candidate], arch, false);
      if (!options_.all_candidates) continue;
      for (const std::size_t index : allowed)
        add(use.tuning.candidates[index], arch, false);
    }
    return uses;
  }

  void add_card(const Card& card) {
    std::vector<TuningRequest> requests;
    for (KernelUse& use : add_uses(card.device.arch, card.limits))
      requests.push_back(std::move(use.tuning));
    const TuningScope scope{.device = card.device,
                            .tp_size = options_.tp_size,
                            .policy = policy_text(SearchPolicy{}, MeasurePolicy{})};
    const LookUp found = value_or_throw(look_up(requests, scope, kernels_, records_, overrides_));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      add(requests[i].candidates[found.selections[i].candidate], card.device.arch, false);
    }
    plan_.coverage.push_back(coverage_of(card, requests, found));
  }

  TuningCoverage coverage_of(const Card& card, const std::vector<TuningRequest>& requests,
                             const LookUp& found) const {
    std::set<std::string> tried;
    const auto tuning = value_or_throw(trials::tuning_plan(
        config_, options_.tp_size, tuned_buckets(options_, config_), card.limits));
    for (const auto* list : {&tuning.requests, &tuning.collectives}) {
      for (const TuningRequest& request : *list)
        tried.insert(request.title());
    }
    TuningCoverage coverage{.device = card.device, .open = {}, .collectives = {}};
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].candidates.size() == 1) continue;
      std::string name = requests[i].title();
      if (!tried.contains(name)) {
        ++coverage.untried;
        continue;
      }
      ++coverage.with_choice;
      if (found.selections[i].source != Selection::Source::fallback) {
        ++coverage.tuned;
      } else {
        const bool together = trials::is_collective(requests[i].candidates.front().family);
        (together ? coverage.collectives : coverage.open).push_back(std::move(name));
      }
    }
    return coverage;
  }

  const PrewarmOptions& options_;
  const jit::KernelStore& kernels_;
  TuningStore& records_;
  const ModelConfig config_;
  const Overrides overrides_;
  PrewarmPlan plan_;
  std::set<std::string> seen_;  // the defaults of several problems are often one kernel
  std::set<std::string> told_;
};

}  // namespace

std::vector<StepBucket> tuned_buckets(const PrewarmOptions& options, const ModelConfig& config) {
  return trials::deployed_buckets(options.batch_buckets, options.batch_buckets,
                                  options.context_buckets, can_sample(config));
}

PrewarmPlan plan_prewarm(const PrewarmOptions& options, const jit::KernelStore& kernels,
                         TuningStore& records) {
  return Planning(options, kernels, records).run();
}

}  // namespace ingot
