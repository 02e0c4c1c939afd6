#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/context.hpp"
#include "runtime/cuda/stream.hpp"
#include "src/executor/device_weights.hpp"
#include "src/executor/kernel_library.hpp"
#include "src/executor/step_program.hpp"
#include "src/plan/step_kernels.hpp"
#include "src/trials/edge_cases.hpp"
#include "src/trials/trial_outputs.hpp"
#include "tuner/verify.hpp"

namespace ingot::trials {

/// What the trials are about: the steps of one rank.
struct TrialScope {
  ModelConfig config;
  int tp_size = 1;
  std::vector<StepBucket> buckets;  ///< where a problem occurs in several, the first one serves
};

/// Microseconds of one of `launches` launches that `queue(i)` queues on the stream.
using Stopwatch = std::function<double(const cu::Context& context, const cu::Stream& stream,
                                       int launches, const std::function<void(int)>& queue)>;

/// The clock of kernels: tuner/measure over a graph.
double graph_time_us(const cu::Context& context, const cu::Stream& stream, int launches,
                     const std::function<void(int)>& queue);

/// Tries candidates in the step itself: made-up weights of as many layers as it takes to find none
/// of them in L2, filled pools, and the launches of a bucket's step with their own arguments. For
/// an edge case the step runs with default kernels up to the first launch of the problem, so that a
/// candidate finds what it will find when it is deployed; its time is that of all such launches of
/// the step, one behind the other. One thread, on which the context is current.
class StepTrials final : public TrialRunner {
 public:
  /// Makes the weights. Throws EngineError: as executor::DeviceWeights::synthetic.
  /// @param arch  that kernels are compiled for
  /// @param jobs  default kernels that are read or compiled at a time
  StepTrials(cu::Context context, std::shared_ptr<jit::KernelStore> kernels, TrialScope scope,
             std::string arch, int jobs, Stopwatch stopwatch = graph_time_us);
  ~StepTrials() override;

  Result<std::vector<std::string>> enter(const std::vector<std::string>& families,
                                         const std::vector<ProblemField>& problem) override;
  Result<std::vector<KernelOutput>> run(const TrialKernel& kernel, std::size_t edge_case,
                                        Poison poison) override;
  Result<double> time_us(const TrialKernel& kernel) override;

  /// Bytes of device memory that the weights take.
  std::uint64_t weight_bytes() const { return weights_.bytes(); }

 private:
  using Slot = executor::KernelLibrary::Slot;
  struct Rig;      // what belongs to a bucket
  struct Entered;  // what belongs to a problem
  struct Loaded {
    std::vector<std::byte> cubin;
    executor::ReadyKernel kernel;
  };

  /// @param joined  with the family that takes the place of several, where the step has it
  const StepKernels& kernels_of(const StepBucket& bucket, bool joined);
  Rig& rig_of(const StepBucket& bucket);
  void leave();
  void fill_scratch(unsigned char any) const;
  void capture_cases();
  void repeat_logits(const Rig& rig) const;
  void restore(std::size_t edge_case) const;
  Result<executor::ReadyKernel> load(const TrialKernel& kernel);
  void launch(const executor::ReadyKernel& kernel, std::size_t index) const;
  /// Where the card only refused something: its error. What it did not survive goes on.
  Error refused(const EngineError& error) const;
  Result<void> check_scratch(const executor::KernelScratch& used) const;

  cu::Context context_;
  const std::shared_ptr<jit::KernelStore> kernels_;
  const TrialScope scope_;  // with as many layers as there are weights
  const int jobs_;
  const Stopwatch stopwatch_;
  cu::Stream stream_;
  executor::DeviceWeights weights_;
  executor::KernelLibrary library_;
  std::map<std::pair<StepBucket, bool>, StepKernels> wanted_;
  std::vector<std::unique_ptr<Rig>> rigs_;  // the one used last at the end
  PinnedBytes host_;
  std::unique_ptr<Entered> entered_;
  std::map<std::string, Loaded> loaded_;  // by variant, of the problem
};

}  // namespace ingot::trials
