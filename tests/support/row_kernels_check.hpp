#pragma once

#include "kernel_templates/embedding.space.hpp"
#include "kernel_templates/expert_sum.space.hpp"
#include "kernel_templates/q_norm_rope.space.hpp"
#include "kernel_templates/swiglu_quant.space.hpp"
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

/// Codes, scales and what must stay as it was; NaN, infinities, zeros and values past the limit;
/// rows apart and a launch for more tokens than there are.
/// @param limit  infinity for none
/// @return elements whose code is a neighbour of the wanted one, as another expf may tip them
int check_swiglu_quant(KernelTarget& target, const kernels::SwigluQuant::Problem& problem,
                       const kernels::SwigluQuant::Params& params, float limit);

/// To the bit but for the bits of NaN; infinities, their differences and ties of the rounding; a
/// launch for more tokens than there are, out of place and onto the shared expert's output.
void check_expert_sum(KernelTarget& target, const kernels::ExpertSum::Problem& problem,
                      const kernels::ExpertSum::Params& params);

}  // namespace ingot::test
