#pragma once
#include "common/peer_link.cuh"

namespace ingot::kernels {

struct AllReduceArgs {
  const float* sums;   // [tokens, hidden] fp32, 16-byte aligned; read with HAS_SUMS
  const bf16* values;  // [tokens, hidden] bf16, 16-byte aligned; read with HAS_VALUES
  bf16* out;           // [tokens, COPIES, hidden] bf16, 16-byte aligned; with COPIES 1 it may be
                       // `values`
  u64*
      inbox[LINK_RANKS];  // of every rank: [halves][RANKS][slot_words], 16-byte aligned, 0 at first
  u32* counts;            // [LINK_COUNTERS] of this rank, 0 at first
  u32* status;            // one word in the host's memory: LINK_GOOD
  i64 slot_words;         // at least all_reduce_words(...), a multiple of 2
  u32 limit_ms;           // of waiting for a rank
  int halves;  // 2; 1 where something else than these kernels carries words from rank to rank, and
               // orders what it reads and writes
  int rank;
  int parts;   // EXCHANGE_WHOLE, or in order: send, with SHOTS 2 middle, receive
  int tokens;  // at least 1
  int hidden;  // channels, a multiple of 8
};

// Words of 64 bits that one rank may leave with another in one all-reduce.
// @param fp32  HAS_SUMS
constexpr i64 all_reduce_words(i64 elements, bool fp32) {
  // Two shots leave a share of the summands and a share of the result: no more than one shot does,
  // but for rounding up to whole vectors.
  return (fp32 ? elements : elements / 2) + 16;
}

}  // namespace ingot::kernels
