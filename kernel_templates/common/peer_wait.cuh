#pragma once
// Waiting for other ranks, but not for ever. A rank that has failed never answers; its kernels must
// not hold the card.
#include "common/peer.cuh"
#include "common/peer_link.cuh"

namespace ingot::kernels::peer {

// One thread's waits of one launch, which share a time limit.
class Patience {
 public:
  __forceinline__ Patience(u32* status, u32 limit_ms) : status_(status), limit_ms_(limit_ms) {}

  // Whether to look again. False, from then on, once the host or a thread of this rank has given
  // up, or this one has waited for too long, which it writes down.
  __forceinline__ bool look_again() {
    constexpr int LOOKS = 256;  // between two looks at the clock and into the host's memory
    pause();
    if (++looks_ % LOOKS != 0) return !gave_up_;
    const u64 now = now_ns();
    if (begin_ == 0) begin_ = now;
    if (load_relaxed(status_) != LINK_GOOD) {
      gave_up_ = true;
    } else if (now - begin_ > static_cast<u64>(limit_ms_) * 1000000) {
      store_relaxed(status_, LINK_TIMED_OUT);
      gave_up_ = true;
    }
    return !gave_up_;
  }
  __forceinline__ bool gave_up() const { return gave_up_; }

 private:
  u32* status_;
  u32 limit_ms_;
  int looks_ = 0;
  u64 begin_ = 0;
  bool gave_up_ = false;
};

// Counts of an exchange run from 2 on: 0 is what memory starts as. Parity goes on past 2^32.
__forceinline__ u32 next_count(u32 count) {
  return count + 1 < 2 ? 2 : count + 1;
}

// Every block keeps the words of LINK_COUNTERS that no other block of its launch looks at, so that
// grids of all sizes count the same exchanges and no atomics are needed. All threads of a block
// call it, when the whole block has read its own word; THREADS >= LINK_COUNTERS.
__forceinline__ void write_counts(u32* counts, u32 count) {
  const u32 at = threadIdx.x;
  if (at < LINK_COUNTERS && at % gridDim.x == blockIdx.x) counts[at] = count;
}

}  // namespace ingot::kernels::peer
