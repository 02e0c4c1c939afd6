#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.hpp"
#include "runtime/cuda/stream.hpp"
#include "src/checkpoint/model_config.hpp"
#include "src/executor/device_state.hpp"
#include "src/executor/device_weights.hpp"
#include "src/executor/kernel_library.hpp"
#include "src/executor/peer_links.hpp"
#include "src/executor/step_buffers.hpp"
#include "src/plan/step_kernels.hpp"

namespace ingot::executor {

/// What a launch writes, for the tuner, which compares what its candidates write.
struct StepOutput {
  /// How bytes become the values that are compared.
  enum class Form {
    plain,           ///< elements of `dtype`
    fp8_tiles,       ///< e4m3 tiles of 128 columns (act_quant), each row's scale in `scales`
    fp8_rows,        ///< e4m3 rows of `columns`, `scale_stride` scales for each in `scales`
    window_entries,  ///< KV entries in the pages of a pool: those that the step's rows write
    pass_entries,    ///< of a wide step: one for each row, from `first_entry` on
    csa_entries,
    hca_entries,
    index_keys,  ///< likewise
  };
  std::string_view name;
  void* at = nullptr;
  std::uint64_t bytes = 0;            ///< of pools unknown: 0
  Dtype dtype = Dtype::u8;            ///< of plain elements
  double tolerance = 0;               ///< KernelOutput::tolerance
  double norm_tolerance = 0;          ///< KernelOutput::norm_tolerance
  bool updated = false;               ///< the launch finds something there and keeps some of it
  float* scales = nullptr;            ///< of fp8
  int columns = 0, scale_stride = 0;  ///< of fp8_rows
  Form form = Form::plain;
  int first_entry = 0;  ///< of pass_entries
};

/// One launch of a step, with its arguments.
struct StepLaunch {
  std::string_view name;                ///< what it does in the model: "wq_a, wkv"
  const ReadyKernel* kernel = nullptr;  ///< null: NCCL gathers `args`, a GatherWords
  std::vector<std::byte> args;
  int layer = -1;  ///< -1: in front of the first, or behind the last
  std::vector<StepOutput> outputs = {};
  /// Runs beside the launches that follow it and those before it, but for the last one in front of
  /// its group. Its blocks wait for no others: what runs beside may keep these off the card.
  bool beside = false;
  bool joins = false;  ///< needs what all launches beside have written
};

/// Where a step's launches go. Neither stream has other work while a step is queued or recorded.
struct StepStreams {
  const cu::Stream& main;
  const cu::Stream& beside;
  cu::Event& forked;  ///< in `main`, where a group of launches beside begins
  cu::Event& joined;  ///< in `beside`, where one ends
};

/// What NCCL carries from every rank to every rank.
struct GatherWords {
  const void* from = nullptr;
  void* to = nullptr;  ///< [ranks][bytes]; `from` may be the rank's own place in it
  std::size_t bytes = 0;
};

/// The launches of one step of one bucket, in order. All arguments are addresses that stay and the
/// bucket's constants, so that it can be run as it is or recorded into a graph.
class StepProgram {
 public:
  /// @param library  has prepared `kernels`; it, weights, state and the memory behind buffers and
  ///                 scratch outlive the program
  /// @param links    connected; null with one rank
  StepProgram(const ModelConfig& config, const StepBucket& bucket, const StepKernels& kernels,
              const KernelLibrary& library, const DeviceWeights& weights, const DeviceState& state,
              const StepBuffers& buffers, const StepScratch& scratch,
              const PeerLinks* links = nullptr);

  /// Queues all launches, one behind the other: the order of the list is a right one.
  void launch(const cu::Stream& stream) const;
  /// Queues all launches, some beside others. What follows in `main` follows all of them.
  void launch(const StepStreams& streams) const;
  void launch_one(const cu::Stream& stream, const StepLaunch& one) const;
  const std::vector<StepLaunch>& launches() const { return launches_; }

 private:
  std::vector<StepLaunch> launches_;
  const PeerLinks* links_;
};

/// The largest scratch of these kernels, and of those that run beside others.
KernelScratch scratch_of(const KernelLibrary& library, const StepKernels& kernels,
                         const StepBucket& bucket);

}  // namespace ingot::executor
