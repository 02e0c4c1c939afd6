#pragma once
#include "hc_pre.args.h"

namespace ingot::kernels {

constexpr int HC_WIDE_CHANNELS = 64;  // of one stage: 128 bytes of each stream of a token

// Offsets in dynamic shared memory. The rings are done with when the sums are joined, so both use
// the same place.
struct HcPreWideSizes {
  int weights, stage;          // of a stage: where its weights lie, and its bytes
  int squares, totals, norms;  // joining: behind the warps' mixes [warps][TOKENS][24]
  int bytes;
};
constexpr HcPreWideSizes hc_pre_wide_sizes(int tokens, int groups, int stages, bool after) {
  HcPreWideSizes s{};
  s.weights = tokens * (HC_STREAMS + (after ? 1 : 0)) * HC_WIDE_CHANNELS * 2;
  s.stage = s.weights + HC_MIXES * HC_STREAMS * HC_WIDE_CHANNELS * 4;
  const int warps = groups * tokens / 4;
  s.squares = 4 * warps * tokens * HC_MIXES;         // [groups][TOKENS]
  s.totals = s.squares + 4 * groups * tokens;        // [TOKENS][24 + 1]
  s.norms = s.totals + 4 * tokens * (HC_MIXES + 1);  // [2][warps]
  const int joining = s.norms + 4 * 2 * warps, rings = groups * stages * s.stage;
  s.bytes = ((joining > rings ? joining : rings) + 15) / 16 * 16;
  return s;
}

}  // namespace ingot::kernels
