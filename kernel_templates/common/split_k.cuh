#pragma once
// Reduction of split-K partial sums between blocks of one launch, in a fixed order and without
// flags: every 32-bit word of the workspace is its own flag. A word that nobody has written holds
// kNothing, a NaN that no arithmetic instruction produces (those give 0x7fffffff); the block that
// reads a word puts kNothing back, so the workspace is clean for the next launch on the stream.
//
// The unit is a warp fragment: 16 weight rows x 8 tokens, four floats per lane. Of the SPLIT_K
// blocks that share a tile, one owns a fragment: it sums it, the others publish theirs to it.
// All blocks of the grid must be resident at once: owners wait for their siblings.
#include "common/ptx.cuh"
#include "common/types.cuh"

namespace ingot::kernels::split_k {

constexpr u32 kNothing = 0xffffffffu;
constexpr int kFragmentBytes = 512;

__forceinline__ void publish(char* to, const float (&part)[4]) {
  ptx::store_relaxed(to, make_uint4(__float_as_uint(part[0]), __float_as_uint(part[1]),
                                    __float_as_uint(part[2]), __float_as_uint(part[3])));
}
__forceinline__ bool incomplete(uint4 words) {
  return words.x == kNothing || words.y == kNothing || words.z == kNothing || words.w == kNothing;
}
__forceinline__ void add(float (&sum)[4], uint4 words) {
  sum[0] += __uint_as_float(words.x);
  sum[1] += __uint_as_float(words.y);
  sum[2] += __uint_as_float(words.z);
  sum[3] += __uint_as_float(words.w);
}

// Loads `count` splits' words of this lane from `from` on, again and again all that are missing at
// once: siblings finish at different times, and a word asked for too early costs a whole trip to
// L2. `skip`: the split whose sums are in registers.
template <int COUNT>
__forceinline__ void await(uint4 (&words)[COUNT], const char* from, int count, int skip) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if (i < count && i != skip) words[i] = ptx::load_relaxed(from + i * kFragmentBytes);
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (i < count && i != skip && incomplete(words[i])) {
        words[i] = ptx::load_relaxed(from + i * kFragmentBytes);
        missing = true;
      }
    }
  } while (missing);
}

// sum += words of `count` splits, in their order; `own` takes the place of `skip`.
template <int COUNT>
__forceinline__ void add_in_order(float (&sum)[4], const uint4 (&words)[COUNT], int count, int skip,
                                  const float (&own)[4]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    if (i >= count) continue;
    if (i == skip) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sum[e] += own[e];
    } else {
      add(sum, words[i]);
    }
  }
}

__forceinline__ void clean(char* from, int count, int skip) {
  for (int i = 0; i < count; ++i)
    if (i != skip)
      ptx::store_relaxed(from + i * kFragmentBytes,
                         make_uint4(kNothing, kNothing, kNothing, kNothing));
}

// parts[j] with j known at run time only, without sending the array to memory.
template <int TOKEN_BLOCKS>
__forceinline__ void select(float (&own)[4], const float (&parts)[TOKEN_BLOCKS][4], int j) {
#pragma unroll
  for (int n = 0; n < TOKEN_BLOCKS; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      own[e] = n == 0 || n == j ? parts[n][e] : own[e];
}

// Called by the 8 warps of a block with their fragments of one tile, `parts[j]` for token block j.
// `store(j, sum)` is called by whole warps, once for each fragment that this block owns.
// @param blocks  token blocks in use; the others are neither exchanged nor stored
template <int SPLIT_K, int TOKEN_BLOCKS, class Store>
__forceinline__ void reduce(const float (&parts)[TOKEN_BLOCKS][4], void* workspace, int tile,
                            int blocks, int split, int warp, int lane, Store store) {
  if constexpr (SPLIT_K == 1) {
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
      if (j < blocks) store(j, parts[j]);
    return;
  }
  // Neighbouring token blocks go to different owners; with more splits than warps, so do all
  // fragments of one token block and the next.
  constexpr int STEP = SPLIT_K <= 8 ? 1 : 8;
  const auto slots = [&](int j) {  // this lane's slot of split 0
    const i64 fragment = static_cast<i64>(tile) * TOKEN_BLOCKS * 8 + j * 8 + warp;
    return static_cast<char*>(workspace) + fragment * SPLIT_K * kFragmentBytes + lane * 16;
  };
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
    if (j < blocks && (j * STEP + warp) % SPLIT_K != split)
      publish(slots(j) + split * kFragmentBytes, parts[j]);

  if constexpr (SPLIT_K <= 8) {
    // Of SPLIT_K neighbouring token blocks (a group) this block owns one of each warp. A batch of
    // groups is in flight at once.
    constexpr int GROUPS = (TOKEN_BLOCKS + SPLIT_K - 1) / SPLIT_K;
    constexpr int LOADS = TOKEN_BLOCKS > 8 ? 8 : 16;  // registers for four words each
    constexpr int BATCH = LOADS / SPLIT_K < GROUPS ? LOADS / SPLIT_K : GROUPS;
    const int turn = (split + 8 * SPLIT_K - warp) % SPLIT_K;
#pragma unroll
    for (int first = 0; first < GROUPS; first += BATCH) {
      uint4 words[BATCH][SPLIT_K];
      // All first loads before anything waits: one trip to L2 for the batch when siblings are done.
#pragma unroll
      for (int i = 0; i < BATCH; ++i)
#pragma unroll
        for (int s = 0; s < SPLIT_K; ++s) {
          const int j = (first + i) * SPLIT_K + turn;
          if (j < blocks && s != split)
            words[i][s] = ptx::load_relaxed(slots(j) + s * kFragmentBytes);
        }
      bool missing;
      do {
        missing = false;
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
#pragma unroll
          for (int s = 0; s < SPLIT_K; ++s) {
            const int j = (first + i) * SPLIT_K + turn;
            if (j < blocks && s != split && incomplete(words[i][s])) {
              words[i][s] = ptx::load_relaxed(slots(j) + s * kFragmentBytes);
              missing = true;
            }
          }
      } while (missing);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        const int j = (first + i) * SPLIT_K + turn;
        if (j >= blocks) continue;
        float own[4], sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        select(own, parts, j);
        add_in_order(sum, words[i], SPLIT_K, split, own);
        store(j, sum);
        clean(slots(j), SPLIT_K, split);
      }
    }
  } else {
#pragma unroll 1
    for (int j = 0; j < blocks; ++j) {
      if ((j * STEP + warp) % SPLIT_K != split) continue;
      constexpr int BATCH = 16;  // splits in flight at once
      float own[4], sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      select(own, parts, j);
#pragma unroll
      for (int first = 0; first < SPLIT_K; first += BATCH) {
        uint4 words[BATCH];
        const int count = SPLIT_K - first < BATCH ? SPLIT_K - first : BATCH;
        await(words, slots(j) + first * kFragmentBytes, count, split - first);
        __syncwarp();
        add_in_order(sum, words, count, split - first, own);
      }
      store(j, sum);
      clean(slots(j), SPLIT_K, split);
    }
  }
}

}  // namespace ingot::kernels::split_k
