#pragma once

#include "kernel_templates/router_topk.space.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// Runs one prepared variant on logits that are exact in fp32 and full of ties, with a token of
/// NaN, one with single NaN logits and token ids outside the table, and holds ids (exactly) and
/// weights against the reference; poisons outputs first. Runs it again and wants the same bits, and
/// the workspace as it was. Catch assertions.
void check_router_topk(KernelTarget& target, const kernels::RouterTopk::Problem& problem,
                       const kernels::RouterTopk::Params& params);

}  // namespace ingot::test
