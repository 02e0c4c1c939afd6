#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/nccl_api.hpp"
#include "runtime/cuda/context.hpp"
#include "runtime/jit/kernel_store.hpp"
#include "src/engine/engine.hpp"
#include "src/executor/device_weights.hpp"
#include "tuner/overrides.hpp"
#include "tuner/tuning_key.hpp"
#include "tuner/tuning_store.hpp"

namespace ingot {

struct DeviceOptions {
  std::int64_t max_context = 0;     ///< tokens a sequence may hold; 0 = max_position_embeddings
  int max_sequences = 64;           ///< sequences and kept copies that exist at a time
  std::int64_t context_tokens = 0;  ///< of all sequences together; 0 = what the memory leaves
  /// Rows of the largest pass: a power of two from 256 to 4,096. Fewer where memory is short
  /// (executor::plan_rank_memory).
  int step_rows = 4096;
  int jobs = 4;        ///< kernels that are compiled at a time
  bool graphs = true;  ///< replay steps from CUDA graphs
  /// A sequence's logits, to the bit, depend on its tokens alone: not on what else is in the batch,
  /// nor on how its tokens were cut into steps. Slower; see docs/device-engine.md.
  bool deterministic = false;
  /// Carries what ranks exchange; null: they write to each other's memory.
  std::shared_ptr<const nccl::NcclApi> nccl = nullptr;
  /// Ranks may share a card: only where all their launches always find room beside each other, as
  /// on an emulated one. On a GPU those whose blocks wait for one another might never.
  bool shared_card = false;
  int peer_limit_ms = 3000;  ///< that a kernel waits for another rank before it gives up
};

/// Where the device engine's kernels come from.
struct KernelSource {
  std::shared_ptr<jit::KernelStore> kernels;
  std::shared_ptr<TuningStore> records;  ///< null: defaults run
  TuningDevice device;
  std::string policy;  ///< policy_text()
  Overrides overrides;
};

/// What a device engine did; grows from its start on.
struct DeviceStats {
  std::int64_t steps = 0;
  std::int64_t graph_steps = 0;  ///< of them, those replayed from a graph
  int step_rows = 0;             ///< of the largest pass
  int buckets = 0;               ///< for which kernels are ready
  int graphs = 0;                ///< of them, those that have one
  int kernels_compiled = 0;
  std::uint64_t weight_bytes = 0, state_bytes = 0, buffer_bytes = 0;
  std::uint64_t graph_bytes = 0;    ///< that all graphs took of the card's memory
  std::int64_t context_tokens = 0;  ///< that fit into the pools
  int pages_in_use = 0;             ///< of both kinds
  std::int64_t nan_scores = 0;      ///< of the indexer; they count as minus infinity
  std::int64_t nan_rows = 0;        ///< of logits that were wanted
  std::int64_t tokens_sampled = 0;  ///< chosen on the device
};

/// What a tensor parallel rank is given: a card and its share of the weights.
struct DeviceRank {
  cu::Context context;
  executor::DeviceWeights weights;
};

/// Where the time of a decode step goes.
struct DecodeTiming {
  double step_us = 0;   ///< mean of a step on the device, launches and dependencies included
  double queue_us = 0;  ///< mean time that the host takes to queue one
  int launches = 0;     ///< of a step
  bool from_graph = false;
  /// Launches by what they do; `us` is of all of them together.
  struct Part {
    std::string name;    ///< "wq_a, wkv"
    std::string kernel;  ///< the variant that runs: "fp8_linear_sm90 TOKENS=8 …"
    std::string choice;  ///< "tuned", "default" …
    double us = 0;
    int launches = 0;
  };
  /// Each kind of launch in a graph of its own: without the others' traffic and edges. By falling
  /// time.
  std::vector<Part> parts;
  /// What each kind of launch adds to the step from the graph, by the card's clock: the critical
  /// path. Only where the kernels were made of executor::traced_templates().
  std::vector<Part> path;
  double experts_read = 0;  ///< distinct experts of a layer, mean
};

/// Kinds of launches of a pass, each by itself.
struct PassTiming {
  int rows = 0;  ///< of its bucket
  int launches = 0;
  std::vector<DecodeTiming::Part> parts;  ///< by falling time
};

/// Tokens by which time_decode() lengthens its sequences: warm-up, those that are timed, traced,
/// and one launch by launch.
constexpr int timed_decode_tokens(int steps) {
  return 3 + 2 * steps + 1;
}

/// The model on one GPU, or on one per tensor parallel rank: kernels of the bucket that a step
/// falls into, made for this card, launched in order on one stream, from a CUDA graph once the
/// bucket has run before. Ranks run on threads of the engine, but for rank 0, which runs on the
/// caller's.
///
/// Where a rank of several fails, the others stop within seconds, its error is thrown once, and
/// every later step is refused.
///
/// A step whose bucket has run twice compiles and records nothing, and launch() and finish()
/// allocate nothing on the host, but for the alternatives of SamplingParams::top_logprobs and where
/// it has more rows of logits, penalties or bias than any step before it. step() makes the list
/// that it returns.
///
/// A sequence's logits depend on the batch and on how its tokens were cut into steps within the
/// rounding of the kernels that these buckets choose; not at all with DeviceOptions::deterministic.
class DeviceEngine final : public Engine {
 public:
  /// The context must be current on every thread that uses or destroys the engine.
  /// Errors (thrown): invalid_argument for options out of range; unsupported for a model that the
  /// kernels do not take; cuda where memory does not suffice (what was needed, what is free).
  DeviceEngine(cu::Context context, ModelConfig config, executor::DeviceWeights weights,
               KernelSource source, const DeviceOptions& options);
  /// @param ranks  in order, each with the weights of its rank of ranks.size(); the first one's
  ///               context must be current
  /// Errors (thrown): as above, and unsupported for cards of different kinds.
  DeviceEngine(std::vector<DeviceRank> ranks, ModelConfig config, KernelSource source,
               const DeviceOptions& options);
  ~DeviceEngine() override;

  const ModelConfig& config() const override;
  std::int64_t max_context() const override;
  SequenceId create_sequence() override;
  SequenceId fork(SequenceId sequence) override;
  void release(SequenceId sequence) override;
  std::int64_t length(SequenceId sequence) const override;
  void rollback(SequenceId sequence, std::int64_t length) override;
  std::int64_t max_rollback() const override;
  /// The bytes are those of any device engine of the model, whatever its card and kernels.
  Result<std::string> snapshot_bytes(SequenceId sequence) const override;
  /// Errors: exhausted too, where no place or too few pages are free.
  Result<SequenceId> restore(std::string_view bytes) override;
  std::optional<EngineCounts> counts() const override;
  std::optional<EngineRoom> room() const override;
  /// Chooses tokens where it is offered to. Logits come back all the same of a row with more than
  /// 512 entries of logit bias, or with penalties or a bias behind the first 64 wanted rows of a
  /// pass.
  std::vector<StepLogits> step(std::span<const SequenceStep> batch) override;
  /// A step is queued on the card's stream: its kernels may still be compiled, and its graph
  /// recorded, before launch() returns.
  bool can_overlap() const override { return true; }
  void launch(std::span<const SequenceStep> batch) override;
  std::span<StepLogits> finish() override;
  NumericFaults numeric_faults() const override;
  /// Loads the kernels of one size of step and records its graph, where the kernel cache has them.
  bool prepare(const StepForecast& forecast) override;

  /// From the next step on, whatever DeviceOptions::deterministic said.
  void set_deterministic(bool on);
  /// For measuring: fills all pools with entries of no meaning, but valid ones.
  void fill_context();
  /// For measuring: a sequence that holds `length` tokens that nobody gave it.
  SequenceId create_filled(std::int64_t length);
  /// For measuring: decode steps of these sequences, which grow by timed_decode_tokens(steps);
  /// tokens are made up.
  DecodeTiming time_decode(std::span<const SequenceId> sequences, int steps);
  /// For measuring: the launches of the newest pass, again and again: what its sequences hold is
  /// worth nothing afterwards. Empty before the first pass.
  PassTiming time_newest_pass();
  DeviceStats stats() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ingot
