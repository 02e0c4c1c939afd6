#pragma once

#include <vector>

#include "kernel_templates/attention_slots.space.hpp"
#include "tests/support/kernel_target.hpp"

namespace ingot::test {

/// A query token; sequence -1 is an idle row.
struct SlotsRow {
  int position;
  int sequence;
};

/// The first token, both sides of every edge of window, rings, blocks and pages, up to a million,
/// in sequences that are not in order, with idle rows between.
std::vector<SlotsRow> edge_rows();

/// A wide step: sequences whose tokens lie side by side, some longer than a ring of so many
/// entries, single tokens between them, and idle rows at the end.
std::vector<SlotsRow> wide_rows(int ring);

/// All lists of one prepared variant, element by element, and that nothing else is written: neither
/// behind a count, nor for an idle row, nor for rows that the launch has and the step has not.
/// Catch assertions.
/// @param problem  problem.hca_slots below what the rows need: lists and counts are cut
void check_attention_slots(KernelTarget& target, kernels::AttentionSlots::Problem problem,
                           const kernels::AttentionSlots::Params& params,
                           const std::vector<SlotsRow>& rows);

}  // namespace ingot::test
