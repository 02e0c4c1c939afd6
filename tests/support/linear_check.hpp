#pragma once

#include "kernel_templates/bf16_linear.space.hpp"
#include "kernel_templates/bf16_linear_sm90.space.hpp"
#include "kernel_templates/grouped_linear.space.hpp"
#include "kernel_templates/grouped_linear_few.space.hpp"
#include "kernel_templates/grouped_linear_sm90.space.hpp"
#include "tests/support/kernel_target.hpp"

/// Checks of the linears of bf16 inputs: one prepared variant against the reference, with a token
/// of NaN among the inputs, outputs poisoned first. Runs again and wants the same bits, and the
/// workspace as it was. Catch assertions.
namespace ingot::test {

/// The first segment has bf16 outputs, the others fp32 ones.
void check_bf16_linear(KernelTarget& target, const kernels::Bf16LinearProblem& problem,
                       const kernels::Bf16Linear::Params& params);
void check_bf16_linear(KernelTarget& target, const kernels::Bf16LinearProblem& problem,
                       const kernels::Bf16LinearSm90::Params& params);

void check_grouped_linear(KernelTarget& target, const kernels::GroupedLinear::Problem& problem,
                          const kernels::GroupedLinear::Params& params);
void check_grouped_linear(KernelTarget& target, const kernels::GroupedLinearProblem& problem,
                          const kernels::GroupedLinearSm90::Params& params);
void check_grouped_linear(KernelTarget& target, const kernels::GroupedLinearProblem& problem,
                          const kernels::GroupedLinearFew::Params& params);

}  // namespace ingot::test
