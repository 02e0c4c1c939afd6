#pragma once

#include "kernel_templates/embedding.space.hpp"
#include "kernel_templates/q_norm_rope.space.hpp"
#include "tests/support/kernel_target.hpp"

/// Checks of kernels that take each row on its own: one prepared variant against the reference,
/// outputs poisoned first. Catch assertions.
namespace ingot::test {

/// Ids of the table, on both of its ends, of other ranks, negative and past the vocabulary; to the
/// bit.
void check_embedding(KernelTarget& target, const kernels::Embedding::Problem& problem,
                     const kernels::Embedding::Params& params);

/// Positions up to a million; a head of NaN and one of zeros. The same bits on a second run.
/// @return heads whose scale was tipped by the order of the sum
int check_q_norm_rope(KernelTarget& target, const kernels::QNormRope::Problem& problem,
                      const kernels::QNormRope::Params& params);

}  // namespace ingot::test
