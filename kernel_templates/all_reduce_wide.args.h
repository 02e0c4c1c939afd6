#pragma once
#include "common/peer_link.cuh"

namespace ingot::kernels {

struct AllReduceWideArgs {
  const float* sums;       // [tokens, hidden] fp32, 16-byte aligned; read with HAS_SUMS
  const bf16* values;      // [tokens, hidden] bf16, 16-byte aligned; read with HAS_VALUES
  bf16* out[LINK_RANKS];   // of every rank: [tokens, COPIES, hidden] bf16, 16-byte aligned; with
                           // COPIES 1 a rank's may be its `values`
  u8* inbox[LINK_RANKS];   // of every rank: [RANKS][slot_bytes], 16-byte aligned
  u32* flags[LINK_RANKS];  // of every rank: [2][RANKS][LINK_COUNTERS], 0 at first
  u32* counts;             // [LINK_COUNTERS] of this rank, 0 at first
  u32* status;             // one word in the host's memory: LINK_GOOD
  i64 slot_bytes;          // at least all_reduce_wide_slot_bytes(...), a multiple of 16
  u32 limit_ms;            // of waiting for a rank
  int rank;
  int tokens;  // at least 1
  int hidden;  // channels, a multiple of 8
};

// What one rank may leave with another in one all-reduce: its summand of a share of fp32.
constexpr i64 all_reduce_wide_slot_bytes(i64 elements, int ranks) {
  return ((elements / 4 + ranks - 1) / ranks + 1) * 16;
}

}  // namespace ingot::kernels
