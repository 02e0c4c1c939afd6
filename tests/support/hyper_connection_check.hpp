#pragma once

#include "kernel_templates/hc_post.space.hpp"
#include "kernel_templates/hc_pre.space.hpp"
#include "kernel_templates/hc_pre_wide.space.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// Runs one prepared variant on random streams, with a token of NaN and one of zeros among them,
/// and holds all outputs against the reference engine; poisons them first. Runs it again and wants
/// the same bits, and the workspace as it was. Catch assertions.
/// @return units in the last place by which a bf16 output was off at most
int check_hc_pre(KernelTarget& target, const kernels::HcPreProblem& problem,
                 const kernels::HcPre::Params& params);
int check_hc_pre(KernelTarget& target, const kernels::HcPreProblem& problem,
                 const kernels::HcPreWide::Params& params);

int check_hc_post(KernelTarget& target, const kernels::HcPost::Problem& problem,
                  const kernels::HcPost::Params& params);

}  // namespace ingot::test
