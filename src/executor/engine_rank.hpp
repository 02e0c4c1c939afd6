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
#include "src/executor/peer_links.hpp"
#include "src/executor/step_buffers.hpp"
#include "src/executor/step_program.hpp"
#include "src/plan/step_bucket.hpp"

namespace ingot::executor {

struct Bucket {
  StepProgram program;
  std::optional<cu::GraphExec> graph;
  bool ran = false;
};

/// One change of slots and pages.
struct StateChange {
  enum class Kind { copy_slot, copy_csa_page, copy_hca_page, write_csa_row, write_hca_row };
  Kind kind{};
  int from = 0;                                ///< slot or page to copy
  int to = 0;                                  ///< slot or page that is written
  std::size_t first = 0;                       ///< page of the row, of those that are written
  std::size_t pages_begin = 0, pages_end = 0;  ///< these, in StateChanges
};

/// What the host decided about slots and pages: carried out by every rank, in order, before the
/// next step. Kept from step to step for its memory.
class StateChanges {
 public:
  void copy(StateChange::Kind kind, int from, int to) {
    changes_.push_back({.kind = kind, .from = from, .to = to});
  }
  /// @param row  all pages of it; those from `first` on are written
  void write_row(StateChange::Kind kind, int slot, std::size_t first, std::span<const int> row) {
    const std::size_t begin = pages_.size();
    pages_.insert(pages_.end(), row.begin() + static_cast<std::ptrdiff_t>(first), row.end());
    changes_.push_back({.kind = kind,
                        .to = slot,
                        .first = first,
                        .pages_begin = begin,
                        .pages_end = pages_.size()});
  }
  void clear() {
    changes_.clear();
    pages_.clear();
  }
  /// Makes room for so many rows, of a page each.
  void reserve(std::size_t rows) {
    changes_.reserve(rows);
    pages_.reserve(rows);
  }

  bool empty() const { return changes_.empty(); }
  std::span<const StateChange> all() const { return changes_; }
  std::span<const int> pages_of(const StateChange& change) const {
    return std::span(pages_).subspan(change.pages_begin, change.pages_end - change.pages_begin);
  }

 private:
  std::vector<StateChange> changes_;
  std::vector<int> pages_;
};

/// What one tensor parallel rank has: its card, share of the weights, memory and programs. All of
/// it is made, used and destroyed on the rank's thread. Members are destroyed from the last to the
/// first.
class EngineRank {
 public:
  /// Makes the context current.
  EngineRank(int tp_rank, int tp_size, DeviceRank parts, const ModelConfig& model,
             const DeviceOptions& given, std::int64_t longest, int step_rows, KernelSource& source);
  ~EngineRank();

  /// Room for sequences; once, before the first step.
  void make_state(const StateSizes& sizes);
  /// Whether a step of this size can be run without compiling, allocating or recording.
  bool is_ready(const StepBucket& size) const;
  /// Makes it so: nothing of any rank may be in flight on a card.
  void make_ready(const StepBucket& size);
  /// Makes it so ahead of time, its graph included, where nothing has to be compiled for it and the
  /// card has memory to spare; returns false otherwise. As make_ready().
  bool prepare(const StepBucket& size);
  /// Whether prepare() has nothing to do.
  bool is_prepared(const StepBucket& size) const;
  /// Queues a step that is ready.
  void launch(const StepBucket& size);
  void apply(const StateChanges& changes);
  /// Waits for what is queued. Throws EngineError(cuda) where a kernel gave up on another rank.
  void finish();

 private:
  StepKernels want(const StepBucket& size);
  void add_bucket(const StepBucket& size, const StepKernels& kernels);
  void record(Bucket& bucket);
  void queue(const StepProgram& program);
  bool records_at_once() const;
  void await_nccl();

 public:
  const int tp_rank, tp_size;
  cu::Context context;
  const ModelConfig& config;
  const DeviceOptions& options;
  const std::int64_t max_context;
  DeviceWeights weights;
  cu::Stream stream;
  cu::Stream beside;  ///< launches of a step that run beside others
  cu::Event reached;  ///< how far the stream is
  cu::Event forked, joined;
  StepMemory memory;
  std::optional<PeerLinks> links;  ///< with more than one rank
  std::optional<DeviceState> state;
  ScratchPool scratch;
  KernelLibrary library;
  std::map<StepBucket, Bucket> buckets;
  std::int64_t steps = 0, graph_steps = 0;
  int graphs = 0;
  std::uint64_t graph_bytes = 0;  // of the card's memory, that they took
};

}  // namespace ingot::executor
