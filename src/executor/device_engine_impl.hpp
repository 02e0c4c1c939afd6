#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/executor/device_engine.hpp"
#include "src/executor/device_sampling.hpp"
#include "src/executor/engine_rank.hpp"
#include "src/executor/rank_threads.hpp"
#include "src/executor/sequence_table.hpp"

namespace ingot::executor {

/// One part of a sequence in a pass.
struct Part {
  SequenceRecord* record = nullptr;
  std::span<const TokenId> tokens;
  float* logits = nullptr;  // of the last `wanted` tokens
  std::int64_t wanted = 0;
  std::optional<SampleRequest> sample;  // how the token behind the last one is chosen instead
  StepLogits* result = nullptr;
};

/// All ranks with their threads.
class EngineRanks {
 public:
  EngineRanks(std::vector<DeviceRank> parts, const ModelConfig& config,
              const DeviceOptions& options, std::int64_t max_context, KernelSource& source);
  ~EngineRanks();

  /// Runs body on every rank's thread; see RankThreads::run.
  void run(const std::function<void(EngineRank&)>& body);
  /// Within body: waits for every rank; see RankThreads::meet.
  void meet() { threads_.meet(); }
  EngineRank& operator[](std::size_t rank) { return *ranks_[rank]; }
  std::size_t size() const { return ranks_.size(); }

 private:
  void connect(std::shared_ptr<const nccl::NcclApi> nccl);
  void stop() noexcept;
  void take_down() noexcept;

  std::vector<std::unique_ptr<EngineRank>> ranks_;
  std::atomic<bool> connected_ = false;
  RankThreads threads_;
};

}  // namespace ingot::executor

namespace ingot {

/// What a DeviceEngine is made of. Sequences, pages and passes are the host's and exist once; each
/// rank carries out the same on its card. Members are destroyed from the last to the first.
struct DeviceEngine::Impl {
  using EngineRank = executor::EngineRank;
  using Part = executor::Part;
  using SequenceRecord = executor::SequenceRecord;
  using StateChange = executor::StateChange;

  Impl(std::vector<DeviceRank> parts, ModelConfig model, KernelSource from,
       const DeviceOptions& given);
  SequenceRecord& record(SequenceId sequence, const char* attempt);
  /// Everything that can be wrong with a step, before anything changes.
  void check(std::span<const SequenceStep> batch);
  /// Takes the pages that the tokens of a step will fill.
  void grow(SequenceRecord& r, std::int64_t length);
  /// Keeps a change of the state for the next step.
  void change(StateChange next);
  /// Carries out what is kept, on every rank, and waits for it.
  void apply_changes();
  /// Cuts the batch into passes of at most options' step_rows rows (kBatchFreeRows where steps are
  /// deterministic), at most one part of a sequence each.
  std::vector<std::vector<Part>> plan(std::span<const SequenceStep> batch,
                                      std::vector<StepLogits>& results);
  /// Makes a step of this size ready on every rank before any rank runs it.
  void make_ready(const StepBucket& size);
  void run_pass(std::span<Part> parts);
  /// Rows of the largest pass.
  int step_rows() { return ranks[0].memory.rows(); }

  // device_sampling.cpp
  /// Whether a step chooses this one's token itself.
  bool takes(const SequenceStep& step) const;
  /// Row `row` of the logits is a part's; it is read if the part is sampled.
  struct LogitRow {
    int row = 0;
    Part* part = nullptr;
  };
  /// Writes down how the rows of a sampled bucket's logits are chosen. A part that cannot be gets
  /// its logits.
  void set_samples(std::span<const LogitRow> wanted, int rows);
  void count_nan_rows(std::span<const float> logits);
  /// Brings what a rank chose; waits for its stream.
  void fetch_samples(EngineRank& rank, std::span<const LogitRow> wanted, int rows);

  const ModelConfig model_config;
  const DeviceOptions options;
  const std::int64_t max_context;
  bool deterministic;
  KernelSource source;
  executor::EngineRanks ranks;
  executor::SequenceTable table;
  std::vector<StateChange> changes;
  executor::StepInputs inputs{};
  executor::SampleAdjustments adjustments;  // of the step whose inputs these are
  DeviceStats counted;
  std::optional<StepBucket> newest;  // that ran
};

}  // namespace ingot
