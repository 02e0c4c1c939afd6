#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/context.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/executor/rank_threads.hpp"
#include "tuner/verify.hpp"

namespace ingot::executor {
struct ReadyKernel;
}

namespace ingot::trials {

/// Tries what all tensor parallel ranks launch together, their sums and gatherings: on every rank's
/// card at once, with the ranks' own links, so that one time is that of all of them. A card may
/// stand for several ranks (tests): then the blocks of one launch of each of them must find room
/// beside each other, and no launch begins before the one in front of it has ended, so that times
/// are not those of a step. What fails on a card is thrown: ranks that wait for one that failed are
/// of no more use.
class LinkTrials final : public TrialRunner {
 public:
  /// @param contexts  by rank; their cards reach each other's memory
  /// @param replays   of a graph of many exchanges, for one time
  /// Throws EngineError: unsupported where a card cannot reach another's memory, cuda.
  LinkTrials(std::vector<cu::Context> contexts, std::shared_ptr<jit::KernelStore> kernels,
             const ModelConfig& config, std::string arch, int replays = 10);
  ~LinkTrials() override;

  Result<std::vector<std::string>> enter(const std::vector<std::string>& families,
                                         const std::vector<ProblemField>& problem) override;
  Result<std::vector<KernelOutput>> run(const TrialKernel& kernel, std::size_t edge_case,
                                        Poison poison) override;
  /// The slowest rank's; of a gathering with a sum of a few words behind it.
  Result<double> time_us(const TrialKernel& kernel) override;

 private:
  struct Rank;
  struct Exchange;

  void load(const TrialKernel& kernel);
  void launch(Rank& rank, int tokens) const;
  void keep_in_step(Rank& rank) const;
  void queue(const Rank& rank, const executor::ReadyKernel& kernel, const void* args) const;
  int size() const { return static_cast<int>(ranks_.size()); }

  const int replays_;
  const bool shares_card_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Exchange> exchange_;  // what was entered
  executor::RankThreads threads_;       // ends before what its bodies use
};

}  // namespace ingot::trials
