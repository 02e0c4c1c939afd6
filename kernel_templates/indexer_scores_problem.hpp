#pragma once

#include "kernel_templates/indexer_scores.args.h"

namespace ingot::kernels {

/// What every family that scores index keys is asked for.
struct IndexerScoresProblem {
  int rows = 1;           ///< query tokens of a launch
  int rows_together = 1;  ///< neighbouring rows of one sequence: 1, or the query tokens of a step
  int heads = 64;         ///< index heads of this rank
  int entries = 65536;    ///< keys of the longest row; only what is fastest depends on it
  // Layout of the pool.
  int page_entries = 64;
  int page_bytes = 4352;

  template <class Self, class Visit>
  static void for_each_field(Self& self, Visit&& visit) {
    auto& [rows, rows_together, heads, entries, page_entries, page_bytes] = self;
    visit("rows", rows);
    visit("rows_together", rows_together);
    visit("heads", heads);
    visit("entries", entries);
    visit("page_entries", page_entries);
    visit("page_bytes", page_bytes);
  }
};

}  // namespace ingot::kernels
