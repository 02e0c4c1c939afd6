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

// Sums one owned fragment in the order of the splits, hands it to `store` and cleans its slots.
// `from`: this lane's slot of split 0. `words`: what earlier loads of the slots returned.
template <int SPLIT_K, int COUNT>
__forceinline__ void add_in_order(float (&sum)[4], uint4 (&words)[COUNT], int first, char* from,
                                  int split, const float (&own)[4]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int s = first + i;
    if (s >= SPLIT_K) continue;
    if (s == split) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sum[e] += own[e];
    } else {
      while (incomplete(words[i]))
        words[i] = ptx::load_relaxed(from + s * kFragmentBytes);
      add(sum, words[i]);
    }
  }
}

template <int SPLIT_K>
__forceinline__ void clean(char* from, int split) {
#pragma unroll
  for (int s = 0; s < SPLIT_K; ++s)
    if (s != split)
      ptx::store_relaxed(from + s * kFragmentBytes,
                         make_uint4(kNothing, kNothing, kNothing, kNothing));
}

// Called by the 8 warps of a block with their fragments of one tile, `parts[j]` for token block j.
// `store(j, sum)` is called by whole warps, once for each fragment that this block owns.
// @param blocks  token blocks in use; the others are neither exchanged nor stored
template <int SPLIT_K, int TOKEN_BLOCKS, class Store>
__forceinline__ void reduce(const float (&parts)[TOKEN_BLOCKS][4], void* workspace, int tile,
                            int blocks, int split, int warp, int lane, Store store) {
  const auto slots = [&](int j) {  // this lane's slot of split 0
    const i64 fragment = static_cast<i64>(tile) * TOKEN_BLOCKS * 8 + j * 8 + warp;
    return static_cast<char*>(workspace) + fragment * SPLIT_K * kFragmentBytes + lane * 16;
  };
  if constexpr (SPLIT_K == 1) {
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
      if (j < blocks) store(j, parts[j]);
  } else if constexpr (SPLIT_K <= 8) {
    // Block (j + warp) % SPLIT_K owns a fragment: of SPLIT_K neighbouring token blocks (a group)
    // this block owns one of each warp. A batch of groups is loaded before the first is waited for.
    constexpr int GROUPS = (TOKEN_BLOCKS + SPLIT_K - 1) / SPLIT_K, BATCH = 8 / SPLIT_K;
    const int turn = (split + 8 * SPLIT_K - warp) % SPLIT_K;
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
      if (j % SPLIT_K != turn && j < blocks) publish(slots(j) + split * kFragmentBytes, parts[j]);
#pragma unroll
    for (int first = 0; first < GROUPS; first += BATCH) {
      uint4 words[BATCH][SPLIT_K];
#pragma unroll
      for (int i = 0; i < BATCH; ++i)
#pragma unroll
        for (int s = 0; s < SPLIT_K; ++s)
          if (s != split && (first + i) * SPLIT_K + turn < blocks)
            words[i][s] =
                ptx::load_relaxed(slots((first + i) * SPLIT_K + turn) + s * kFragmentBytes);
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        const int group = (first + i) * SPLIT_K, j = group + turn;
        if (j >= blocks) continue;
        float own[4], sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int n = 0; n < SPLIT_K; ++n)
          if (group + n < TOKEN_BLOCKS && n == turn) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
              own[e] = parts[group + n][e];
          }
        add_in_order<SPLIT_K>(sum, words[i], 0, slots(j), split, own);
        store(j, sum);
        clean<SPLIT_K>(slots(j), split);
      }
    }
  } else {
    // More blocks than a tile has warps: owners are spread over all of them.
    constexpr int BATCH = 16;  // loads in flight
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
      if (j < blocks && (j * 8 + warp) % SPLIT_K != split)
        publish(slots(j) + split * kFragmentBytes, parts[j]);
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j) {
      if (j >= blocks || (j * 8 + warp) % SPLIT_K != split) continue;
      float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int first = 0; first < SPLIT_K; first += BATCH) {
        uint4 words[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
          if (first + i < SPLIT_K && first + i != split)
            words[i] = ptx::load_relaxed(slots(j) + (first + i) * kFragmentBytes);
        add_in_order<SPLIT_K>(sum, words, first, slots(j), split, parts[j]);
      }
      store(j, sum);
      clean<SPLIT_K>(slots(j), split);
    }
  }
}

}  // namespace ingot::kernels::split_k
