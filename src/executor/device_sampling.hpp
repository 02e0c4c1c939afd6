#pragma once

#include "kernel_templates/sample_tokens.args.h"
#include "src/engine/engine.hpp"

namespace ingot::executor {

/// Whether a step may choose this row's token on the device. Penalties and logit bias stay with the
/// host: their counts and lists belong to sequences, which change rows from step to step.
bool samples_on_device(const SamplingParams& params);

/// A request as the kernel reads it.
kernels::SampleRow sample_row(const SampleRequest& request);
/// What stands in a row whose token nobody asked for: the cheapest choice.
kernels::SampleRow unused_sample_row();

/// What the kernel found, as Sampler::sample reports it.
Result<SampledToken> sampled_token(const kernels::SampleResult& result,
                                   const SamplingParams& params, int vocab_size);

}  // namespace ingot::executor
