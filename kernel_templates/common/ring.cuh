#pragma once
// A ring of stages that a producer fills and a consumer frees, both guarded by barriers.
#include "common/types.cuh"

namespace ingot::kernels {

// A place in a ring: its stage, and the parity of the round.
template <int STAGES>
struct RingPlace {
  int stage = 0;
  u32 parity = 0;
  __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

}  // namespace ingot::kernels
