#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/stream.hpp"
#include "src/executor/device_engine.hpp"
#include "src/executor/device_state.hpp"
#include "src/executor/kernel_library.hpp"
#include "src/executor/sequence_table.hpp"
#include "src/executor/step_buffers.hpp"
#include "src/executor/step_program.hpp"
#include "src/plan/step_problems.hpp"

namespace ingot::executor {

/// One part of a sequence in a pass.
struct Part {
  SequenceRecord* record = nullptr;
  std::span<const TokenId> tokens;
  float* logits = nullptr;  // of the last `wanted` tokens
  std::int64_t wanted = 0;
  // Instead of logits: how the token behind the last one is chosen, and where it goes.
  std::optional<SampleRequest> sample;
  std::optional<Result<SampledToken>>* sampled = nullptr;
};

struct Bucket {
  executor::StepProgram program;
  std::optional<cu::GraphExec> graph;
  bool ran = false;
};

}  // namespace ingot::executor

namespace ingot {

/// What a DeviceEngine is made of. Members are destroyed from the last to the first.
struct DeviceEngine::Impl {
  using Bucket = executor::Bucket;
  using Part = executor::Part;
  using SequenceRecord = executor::SequenceRecord;

  Impl(cu::Context opened, ModelConfig model, executor::DeviceWeights loaded, KernelSource from,
       const DeviceOptions& given);
  ~Impl();
  SequenceRecord& record(SequenceId sequence, const char* attempt);
  /// Everything that can be wrong with a step, before anything changes.
  void check(std::span<const SequenceStep> batch);
  /// Takes the pages that the tokens of a step will fill.
  void grow(SequenceRecord& r, std::int64_t length);
  /// Cuts the batch into passes of at most kMostStepRows rows, at most one part of a sequence each.
  std::vector<std::vector<Part>> plan(std::span<const SequenceStep> batch,
                                      std::vector<StepLogits>& results);
  Bucket& ready_bucket(const StepBucket& size);
  void run(Bucket& bucket);
  void run_pass(std::span<Part> parts);

  // device_sampling.cpp
  /// Whether a step chooses this one's token itself.
  bool takes(const SequenceStep& step) const;
  /// Row `row` of the logits is a part's; it is read if the part is sampled.
  struct LogitRow {
    int row = 0;
    Part* part = nullptr;
  };
  /// Writes down how the rows of a sampled bucket's logits are chosen.
  void set_samples(std::span<const LogitRow> wanted, int rows);
  void count_nan_rows(std::span<const float> logits);
  /// Brings what was chosen; waits for the stream.
  void fetch_samples(std::span<const LogitRow> wanted, int rows);

  cu::Context context;
  const ModelConfig model_config;
  const DeviceOptions options;
  const std::int64_t max_context;
  KernelSource source;
  executor::DeviceWeights weights;
  cu::Stream stream;
  executor::StepMemory memory;
  executor::DeviceState state;
  executor::SequenceTable table;
  executor::ScratchPool scratch;
  executor::KernelLibrary library;
  std::map<StepBucket, Bucket> buckets;
  executor::StepInputs inputs{};
  DeviceStats counted;
};

}  // namespace ingot
