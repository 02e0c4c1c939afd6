#pragma once

#include "kernel_templates/grouped_linear.args.h"
#include "kernel_templates/linear_grid.hpp"

namespace ingot::kernels {

/// What the grouped_linear families are asked for.
struct GroupedLinearProblem {
  int groups = 8;         ///< of the rank
  int group_rows = 1024;  ///< output columns of a group, a multiple of 128
  int cols = 4096;        ///< K of a group, a multiple of 128
  int tokens = 1;         ///< the batch bucket

  LinearWork work() const {
    return {.strips = groups * group_rows / FP8_TILE, .k_tiles = cols / FP8_TILE, .tokens = tokens};
  }

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [groups, group_rows, cols, tokens] = self;
    visit("groups", groups);
    visit("group_rows", group_rows);
    visit("cols", cols);
    visit("tokens", tokens);
  }
};

}  // namespace ingot::kernels
