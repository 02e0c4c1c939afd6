#pragma once
// Split-K reduction through L2 for warps with many fragments (16 tokens x 8 weight rows): as
// split_k::reduce, each 32-bit word its own flag and kNothing put back, but what a block owns of
// each warp is contiguous, and all that a warp waits for is asked for at once. A warp that asks for
// its units one after another pays a trip to L2, 700 cycles and more, for each of them.
#include "common/ptx.cuh"
#include "common/split_k.cuh"
#include "common/types.cuh"

namespace ingot::kernels::split_k {

// Words that other blocks leave for a lane.
// wherever(i): the address of the ith; wanted(i): whether there is one.
template <int COUNT>
struct Words {
  uint4 word[COUNT];

  template <class Wherever, class Wanted>
  __forceinline__ void ask(Wherever wherever, Wanted wanted) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (wanted(i)) word[i] = ptx::load_relaxed(wherever(i));
  }
  template <class Wanted>
  __forceinline__ bool missing(Wanted wanted) const {
    bool any = false;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (wanted(i)) any |= incomplete(word[i]);
    return any;
  }
  template <class Wherever, class Wanted>
  __forceinline__ void put_back(Wherever wherever, Wanted wanted) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      if (wanted(i))
        ptx::store_relaxed(wherever(i), make_uint4(kNothing, kNothing, kNothing, kNothing));
  }
};

// ---- two splits, each of which hands COUNT fragments of each warp to the other

template <int COUNT>
struct HandOver {
  char* place;  // of split 0's
  i64 split_bytes;
  Words<COUNT> words;

  __forceinline__ HandOver(void* workspace, int tile, int warp, int lane)
      : place(static_cast<char*>(workspace) +
              (static_cast<i64>(tile) * 16 + warp) * (COUNT * kFragmentBytes) + lane * 16),
        split_bytes(8 * COUNT * kFragmentBytes) {}

  // @param split  whose sums these are
  __forceinline__ void give(const float (&parts)[COUNT][4], int split) const {
    char* const to = place + split * split_bytes;
#pragma unroll
    for (int n = 0; n < COUNT; ++n)
      ptx::store_relaxed(to + n * kFragmentBytes, as_words(parts[n]));
  }
  // Asks for what split `split` gives, adds it (a sum of two is the same in either order), and
  // leaves the workspace as it was.
  __forceinline__ void ask(int split) {
    words.ask(from(split), all);
  }
  __forceinline__ void add_to(float (&parts)[COUNT][4], int split) {
    while (words.missing(all))
      ask(split);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < COUNT; ++n)
      add(parts[n], words.word[n]);
  }
  __forceinline__ void put_back(int split) const {
    words.put_back(from(split), all);
  }

 private:
  static __forceinline__ bool all(int) {
    return true;
  }
  __forceinline__ auto from(int split) const {
    return [at = place + split * split_bytes](int n) { return at + n * kFragmentBytes; };
  }
};

// ---- any number of splits

// The units of warp `warp` that block `split` owns: [begin, end). No block has the larger share of
// every warp.
template <int SPLIT_K, int UNITS>
struct Share {
  static constexpr int MOST = (UNITS + SPLIT_K - 1) / SPLIT_K;
  int begin, end;
  __forceinline__ Share(int split, int warp) {
    const u32 turn = static_cast<u32>(split + warp) % SPLIT_K;
    begin = turn * UNITS / SPLIT_K;
    end = (turn + 1) * UNITS / SPLIT_K;
  }
};

// Called by the 8 warps of a block with their fragments of one tile; a unit is two of them (16
// weight rows). Sums are added in the order of the splits. `store(unit, sums)` is called by whole
// warps with each unit that this block owns.
// @param staging  shared address of [COUNT][512 bytes] of the warp, free once idle() has returned:
//                 from there the own fragments are taken, whose number is known at run time only
template <int SPLIT_K, int COUNT, class Idle, class Store>
__forceinline__ void reduce_staged(const float (&parts)[COUNT][4], void* workspace, int tile,
                                   u32 staging, int split, int warp, int lane, Idle idle,
                                   Store store) {
  constexpr int UNIT_BYTES = 2 * kFragmentBytes;
  using Owned = Share<SPLIT_K, (COUNT + 1) / 2>;
  const Owned own(split, warp);
  const auto place = [&](int of) {  // of a split's fragments in the workspace
    const i64 at = (static_cast<i64>(tile) * SPLIT_K + of) * 8 + warp;
    return static_cast<char*>(workspace) + at * (COUNT * kFragmentBytes) + lane * 16;
  };
  char* const mine = place(split);
#pragma unroll
  for (int n = 0; n < COUNT; ++n)
    if (n / 2 < own.begin || n / 2 >= own.end)
      ptx::store_relaxed(mine + n * kFragmentBytes, as_words(parts[n]));
  idle();
#pragma unroll
  for (int n = 0; n < COUNT; ++n)
    ptx::store_shared(staging + n * kFragmentBytes + lane * 16, as_words(parts[n]));

  constexpr int OTHERS = SPLIT_K > 1 ? SPLIT_K - 1 : 1, FRAGMENTS = Owned::MOST * 2;
  Words<OTHERS * FRAGMENTS> words;  // of the other splits, ascending
  const auto there = [&](int i) {
    const int other = i / FRAGMENTS;
    return place(other < split ? other : other + 1) + own.begin * UNIT_BYTES +
           i % FRAGMENTS * kFragmentBytes;
  };
  const auto wanted = [&](int i) { return i % FRAGMENTS / 2 < own.end - own.begin; };
  do {
    words.ask(there, wanted);
  } while (words.missing(wanted));
  __syncwarp();
#pragma unroll
  for (int u = 0; u < Owned::MOST; ++u) {
    if (u >= own.end - own.begin) break;
    float sums[2][4];
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const uint4 own_words = ptx::load_shared_words(staging + (own.begin + u) * UNIT_BYTES +
                                                     v * kFragmentBytes + lane * 16);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[v][e] = 0.0f;
#pragma unroll
      for (int s = 0; s < SPLIT_K; ++s) {
        uint4 part = own_words;
        if (s < OTHERS && s < split) part = words.word[s * FRAGMENTS + u * 2 + v];
        if (s > 0 && s > split) part = words.word[(s - 1) * FRAGMENTS + u * 2 + v];
        add(sums[v], part);
      }
    }
    store(own.begin + u, sums);
  }
  words.put_back(there, wanted);
}

}  // namespace ingot::kernels::split_k
