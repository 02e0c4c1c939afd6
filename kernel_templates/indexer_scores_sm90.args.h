#pragma once
#include "indexer_scores.args.h"

namespace ingot::kernels {

// Dynamic shared memory: queries as e4m3, the table of magnitudes, weights with their heads' units,
// counts, the schedule.
constexpr int indexer_scores_sm90_smem_bytes(int heads, int rows) {
  return (rows * heads * (INDEX_DIMS + 4) + 32 * 8 + rows * 4 + 32 * 4 + 2 * 4 + 127) / 128 * 128;
}

}  // namespace ingot::kernels
