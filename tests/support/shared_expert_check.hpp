#pragma once

#include "kernel_templates/shared_expert_few.space.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// Runs one prepared variant and holds the shared expert's output, the chosen experts (exactly) and
/// their weights against the reference; logits are exact in fp32 and full of ties, one token holds
/// NaN, token ids lie outside the table. Poisons outputs first. Runs it again and wants the same
/// bits, and the workspace as it was. Catch assertions.
void check_shared_expert_few(KernelTarget& target, const kernels::SharedExpertFew::Problem& problem,
                             const kernels::SharedExpertFew::Params& params);

}  // namespace ingot::test
