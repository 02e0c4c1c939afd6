#pragma once

#include "kernel_templates/sample_tokens.space.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

struct SamplerCheck {
  int vocabulary = 129280;
  int rows_at_once = 4;  ///< of a launch
  int steps = 3;         ///< one after the other; penalties count what was chosen
  int every = 1;         ///< take each n-th of the made sequences
};

/// Runs one prepared variant on rows of every kind of sampling parameters, of logits with and
/// without ties, of bad logits among good ones, for some steps in a row, and holds tokens, counts
/// and log-probabilities against src/sampler; poisons outputs first. Runs the first step again and
/// wants the same bits. Catch assertions.
/// @return tokens compared
int check_sample_tokens(KernelTarget& target, const SamplerCheck& check,
                        const kernels::SampleTokens::Params& params);

}  // namespace ingot::test
