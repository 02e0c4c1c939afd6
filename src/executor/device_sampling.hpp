#pragma once

#include <vector>

#include "kernel_templates/sample_tokens.args.h"
#include "runtime/cuda/stream.hpp"
#include "src/engine/engine.hpp"
#include "src/executor/step_buffers.hpp"

namespace ingot::executor {

/// What penalties and logit bias of a step's rows need on the device. Made anew for each step:
/// which row is whose changes from step to step. Kept from step to step for its memory: only what
/// no step before has had so much of is allocated.
class SampleAdjustments {
 public:
  void clear();
  /// Adds a row's and says so in `row`. False, and nothing has changed, where there is no room for
  /// it or a token was generated more often than the kernel can count: the host has to sample.
  bool add(int index, const SampleRequest& request, int vocab_size, kernels::SampleRow& row);
  /// Queues the copies. What was added stays as it is until the stream passed them.
  void upload(const StepMemory& memory, const cu::Stream& stream, int vocab_size) const;

 private:
  struct Counts {
    int row = 0;
    std::vector<kernels::u16> values;  // by token
  };

  std::vector<Counts> counts_;
  std::size_t used_ = 0;  // of them; the others are kept for their memory
  std::vector<int> bias_ids_;
  std::vector<double> bias_values_;
};

/// A request as the kernel reads it, but for penalties and logit bias.
kernels::SampleRow sample_row(const SampleRequest& request);
/// What stands in a row whose token nobody asked for: the cheapest choice.
kernels::SampleRow unused_sample_row();

/// What the kernel found, as Sampler::sample reports it.
Result<SampledToken> sampled_token(const kernels::SampleResult& result,
                                   const SamplingParams& params, int vocab_size);

}  // namespace ingot::executor
