#pragma once

#include <filesystem>
#include <limits>
#include <span>
#include <vector>

#include "runtime/jit/kernel_store.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/cli/kernel_cache.hpp"
#include "src/cli/local_cards.hpp"
#include "src/plan/step_bucket.hpp"
#include "src/trials/tuning_plan.hpp"
#include "tuner/tune.hpp"
#include "tuner/tuning_store.hpp"

namespace ingot {

/// A tuning of the steps of some buckets on a card of this machine.
struct CardTuning {
  KernelCacheOptions cache;
  std::filesystem::path config_json;
  ModelConfig config;
  int tp_size = 1;
  std::vector<StepBucket> buckets;
  Card card;
  /// Ordinals of cards of that kind by rank, or the first rank's alone: then what all ranks launch
  /// together is left out.
  std::vector<int> devices{0};
  int jobs = 1;
  double budget_s = std::numeric_limits<double>::infinity();
  bool retune = false;
};

struct CardTuned {
  TuneReport report;  ///< about the plan's requests, then the collectives if they were tried
  trials::TuningPlan plan;
  int signal = 0;  ///< that ended it; what was done until then is kept
};

/// Tunes with the card in a child process, with progress on standard error; the first SIGINT or
/// SIGTERM ends it after the trial in work. No InterruptGuard may live. Throws EngineError:
/// unsupported where a kernel has no variant on the card.
CardTuned tune_card(const CardTuning& tuning, jit::KernelStore& kernels, TuningStore& records);

/// What a run needs before it loads weights: nothing where any kernel of the first bucket has a
/// record, or none has a choice, or the budget is 0; else a tuning within the budget. Says what it
/// does and what is left, to standard error. A signal that ends the tuning ends the program too,
/// after a second at most.
void tune_first_run(const CardTuning& tuning, jit::KernelStore& kernels, TuningStore& records);

/// The ordinals of the first cards of this kind, as many as there are ranks; where there are fewer,
/// of the first one alone. Error: not_found.
[[nodiscard]] Result<std::vector<int>> ordinals_of(const Card& card,
                                                   const KernelCacheOptions& options, int ranks);

}  // namespace ingot
