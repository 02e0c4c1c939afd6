#pragma once

#include <string>
#include <vector>

#include "runtime/jit/kernel_store.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/cli/local_cards.hpp"
#include "src/cli/prewarm_command.hpp"
#include "src/plan/step_bucket.hpp"
#include "tuner/tuning_store.hpp"

namespace ingot {

/// How many kernels of a plan a card has tuning choices for. The others run with their defaults.
struct TuningCoverage {
  TuningDevice device;
  int with_choice = 0;                   ///< kernels that a tuning tries candidates of
  int tuned = 0;                         ///< of these, those with a record
  std::vector<std::string> open;         ///< the others that one card can tune, by title
  std::vector<std::string> collectives;  ///< the others, which take the cards of all ranks
  /// Besides: kernels with candidates that no tuning tries, those of a prompt's wide steps behind
  /// longer contexts than the first.
  int untried = 0;
};

/// The steps that `prewarm` tunes for.
std::vector<StepBucket> tuned_buckets(const PrewarmOptions& options, const ModelConfig& config);

/// What prewarm is to compile.
struct PrewarmPlan {
  std::vector<std::string> archs;
  std::vector<jit::KernelRequest> kernels;  ///< each once
  std::vector<TuningCoverage> coverage;     ///< by card: of this machine, or that records tell of
  ModelConfig config;
  std::vector<Card> local;  ///< cards of this machine, where no --arch is given
};

/// The defaults of every family, which run where nothing else does; the tuned choices of the cards
/// that are known; what the user's pins force; with --all-candidates all that tuning may try.
/// Families that the user disabled are left out. Says which pins fit only in part, to standard
/// error. Throws EngineError for bad input.
PrewarmPlan plan_prewarm(const PrewarmOptions& options, const jit::KernelStore& kernels,
                         TuningStore& records);

}  // namespace ingot
