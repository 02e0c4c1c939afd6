#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "runtime/base/function_ref.hpp"
#include "runtime/cuda/pinned_buffer.hpp"
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

/// A row of a pass's logits and whose it is, or the first of several.
struct LogitRow {
  int row = 0;
  Part* part = nullptr;
};

/// A pass that is queued on every rank: what their streams still read on the host, and what the
/// pass will have brought. Kept from step to step for its memory.
class QueuedPass {
 public:
  /// @param sequences  that exist at a time
  QueuedPass(const cu::Context& context, int sequences);

  StepInputs& inputs() { return *inputs_at_; }
  /// Of the tokens that it chooses, once the streams have passed it.
  std::span<kernels::SampleResult> samples() { return {samples_at_, kMostLogitRows}; }

  std::vector<LogitRow> wanted;   ///< of each part that wants any
  SampleAdjustments adjustments;  ///< of the rows whose tokens it chooses
  int sample_rows = 0;            ///< of logits, whose tokens it chooses
  StateChanges changes;

 private:
  cu::PinnedBuffer memory_;
  StepInputs* inputs_at_ = nullptr;
  kernels::SampleResult* samples_at_ = nullptr;
};

/// All ranks with their threads.
class EngineRanks {
 public:
  EngineRanks(std::vector<DeviceRank> parts, const ModelConfig& config,
              const DeviceOptions& options, std::int64_t max_context, KernelSource& source);
  ~EngineRanks();

  /// Runs body on every rank's thread; see RankThreads::run.
  void run(FunctionRef<void(EngineRank&)> body);
  /// Waits for what is queued on any rank, and drops errors.
  void drain() noexcept;
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
  using LogitRow = executor::LogitRow;
  using Part = executor::Part;
  using QueuedPass = executor::QueuedPass;
  using SequenceRecord = executor::SequenceRecord;

  Impl(std::vector<DeviceRank> given_ranks, ModelConfig model, KernelSource from,
       const DeviceOptions& given);
  ~Impl();
  SequenceRecord& record(SequenceId sequence, const char* attempt);
  /// Room for a step of all sequences, so that none has to make it.
  void reserve_step();
  /// Everything that can be wrong with a step, before anything changes; finds its records.
  void check(std::span<const SequenceStep> batch);
  /// Takes the pages that the tokens of a step will fill.
  void grow(SequenceRecord& r, std::int64_t length);
  /// Carries out the changes that are kept, on every rank, and waits for it.
  void apply_changes();
  /// Cuts the batch into passes of at most options' step_rows rows (kBatchFreeRows where steps are
  /// deterministic), at most one part of a sequence each: `parts` and `pass_ends`.
  void plan(std::span<const SequenceStep> batch);
  /// Makes a step of this size ready on every rank before any rank runs it.
  void make_ready(const StepBucket& size);
  bool is_ready(const StepBucket& size);
  /// Queues a pass, and waits for those before it only where they have to be over.
  void queue_pass(std::span<Part> pass);
  void fill_inputs(QueuedPass& pass, std::span<Part> of, const StepBucket& step,
                   const StepBucket& size);
  /// Waits for the passes that are queued and takes what they brought.
  void collect();
  /// Rows of the largest pass.
  int step_rows() { return ranks[0].memory.rows(); }

  // device_prepare.cpp
  bool is_prepared(const StepBucket& size);
  /// Whether it is from now on. No rank is in the middle of anything afterwards.
  bool prepare(const StepBucket& size) noexcept;

  // device_sampling.cpp
  /// Whether a step chooses this one's token itself.
  bool takes(const SequenceStep& step) const;
  /// Writes down how the rows of a sampled bucket's logits are chosen. A part that cannot be gets
  /// its logits.
  void set_samples(QueuedPass& pass, int rows);
  void count_nan_rows(std::span<const float> logits);
  /// What a pass chose.
  void take_samples(QueuedPass& pass);

  const ModelConfig model_config;
  const DeviceOptions options;
  const std::int64_t max_context;
  bool deterministic;
  KernelSource source;
  executor::EngineRanks ranks;
  executor::SequenceTable table;
  executor::StateChanges changes;  // for the next step
  DeviceStats counted;
  std::optional<StepBucket> newest;  // that ran
  std::set<StepBucket> left_alone;   // by prepare(), which could not make them ready

  // The step that is under way. Lists are kept from step to step for their memory.
  bool under_way = false;
  std::vector<SequenceId> batch_ids;     // of check()
  std::vector<SequenceRecord*> records;  // of its sequences, in its order
  std::vector<StepLogits> results;
  std::vector<Part> parts;
  std::vector<std::size_t> pass_ends;  // in parts
  std::vector<QueuedPass> passes;
  std::size_t queued = 0;  // of them
};

}  // namespace ingot
