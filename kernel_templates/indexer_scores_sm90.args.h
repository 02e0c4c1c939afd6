#pragma once
#include "indexer_scores.args.h"

namespace ingot::kernels {

constexpr int INDEX_COPY_KEYS = 64;  // keys that are copied together

// Dynamic shared memory: keys, queries as e4m3, the table of magnitudes, barriers, weights with
// their heads' units, counts, the schedule.
constexpr int indexer_scores_sm90_smem_bytes(int heads, int rows, int warpgroups, int key_tiles,
                                             int stages) {
  const int keys = INDEX_COPY_KEYS * (INDEX_CODE_BYTES + INDEX_SCALE_BYTES);
  const int rest = rows * (heads * INDEX_DIMS + (heads < 32 ? 4 * 16 : heads * 2)) + 32 * 8 +
                   rows * 4 + 32 * 4 + 2 * 4;
  return (stages * warpgroups * (key_tiles * keys + 16) + rest + 127) / 128 * 128;
}

}  // namespace ingot::kernels
