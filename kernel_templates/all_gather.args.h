#pragma once
#include "common/peer_link.cuh"

namespace ingot::kernels {

struct AllGatherArgs {
  const float* from;       // [rows, share] fp32, 16-byte aligned: this rank's columns
  float* out[LINK_RANKS];  // of every rank: [rows, RANKS * share] fp32, 16-byte aligned
  u32* flags[LINK_RANKS];  // of every rank: [RANKS][LINK_COUNTERS], 0 at first
  u32* counts;             // [LINK_COUNTERS] of this rank, 0 at first
  u32* status;             // one word in the host's memory: LINK_GOOD
  u32 limit_ms;            // of waiting for a rank
  int rank;
  int destinations;  // ranks 0 to destinations - 1 get everything
  int parts;         // EXCHANGE_WHOLE, or in order: send, receive
  int rows;          // at least 1
  int share;         // columns of a rank, a multiple of 4
};

}  // namespace ingot::kernels
