#pragma once
// Reduction of split-K partial sums between the SPLIT_K blocks that share a tile, always in the
// order of the splits: results repeat to the bit and do not depend on a token's place in the batch.
//
// The unit is a warp fragment: 16 weight rows x 8 tokens, four floats per lane. Of the blocks that
// share a tile, one owns a fragment: it sums it, the others hand theirs to it.
//
// Through L2 (reduce): no flags, every 32-bit word of the workspace is its own flag. A word that
// nobody has written holds kNothing, a NaN that no arithmetic instruction produces (those give
// 0x7fffffff); the block that reads a word puts kNothing back, so the workspace is clean for the
// next launch on the stream. All blocks of the grid must be resident at once: owners wait.
// Through the shared memory of a cluster (reduce_in_cluster): stores that complete on a barrier of
// the owner's warp.
#include "common/barrier.cuh"
#include "common/ptx.cuh"
#include "common/types.cuh"

namespace ingot::kernels::split_k {

constexpr u32 kNothing = 0xffffffffu;
constexpr int kFragmentBytes = 512;

__forceinline__ uint4 as_words(const float (&part)[4]) {
  return make_uint4(__float_as_uint(part[0]), __float_as_uint(part[1]), __float_as_uint(part[2]),
                    __float_as_uint(part[3]));
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

// sum += words of `count` splits, in their order; `own` takes the place of `skip`.
template <int COUNT>
__forceinline__ void add_in_order(float (&sum)[4], const uint4 (&words)[COUNT], int count, int skip,
                                  const float (&own)[4]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    if (i < count) add(sum, i == skip ? as_words(own) : words[i]);
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

// With up to 8 splits, block (j + warp) % SPLIT_K owns warp `warp`'s fragment of token block j: of
// SPLIT_K neighbouring token blocks (a group) each block owns one of each warp, block `turn`.
template <int SPLIT_K>
__forceinline__ int turn_of(int split, int warp) {
  return (split + 8 * SPLIT_K - warp) % SPLIT_K;
}

// Called by the 8 warps of a block with their fragments of one tile, `parts[j]` for token block j.
// `store(j, sums, stride)` is called by whole warps with the fragments of token blocks j,
// j + stride, ... that this block owns; those past `blocks` are garbage.
// @param blocks  token blocks in use; the others are not exchanged
template <int SPLIT_K, int TOKEN_BLOCKS, class Store>
__forceinline__ void reduce(const float (&parts)[TOKEN_BLOCKS][4], void* workspace, int tile,
                            int blocks, int split, int warp, int lane, Store store) {
  const auto slots = [&](int j) {  // this lane's slot of split 0
    const i64 fragment = static_cast<i64>(tile) * TOKEN_BLOCKS * 8 + j * 8 + warp;
    return static_cast<char*>(workspace) + fragment * SPLIT_K * kFragmentBytes + lane * 16;
  };
  // With more splits than warps, owners are spread over all fragments of a token block.
  constexpr int STEP = SPLIT_K <= 8 ? 1 : 8;
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
    if (j < blocks && (j * STEP + warp) % SPLIT_K != split)
      ptx::store_relaxed(slots(j) + split * kFragmentBytes, as_words(parts[j]));

  if constexpr (SPLIT_K <= 8) {
    constexpr int GROUPS = (TOKEN_BLOCKS + SPLIT_K - 1) / SPLIT_K;
    constexpr int LOADS = TOKEN_BLOCKS > 8 ? 8 : 16;  // in flight, four registers each
    constexpr int BATCH = LOADS / SPLIT_K < GROUPS ? LOADS / SPLIT_K : GROUPS;
    const int turn = turn_of<SPLIT_K>(split, warp);
#pragma unroll
    for (int first = 0; first < GROUPS; first += BATCH) {
      uint4 words[BATCH][SPLIT_K];
#pragma unroll
      for (int i = 0; i < BATCH; ++i)
#pragma unroll
        for (int s = 0; s < SPLIT_K; ++s)
          words[i][s] = make_uint4(kNothing, kNothing, kNothing, kNothing);
      // All that are missing are asked for at once, again and again: siblings finish at different
      // times, and a word asked for too early costs a whole trip to L2.
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
      float sums[BATCH][4];
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        float own[4];
        select(own, parts, (first + i) * SPLIT_K + turn);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[i][e] = 0.0f;
        add_in_order(sums[i], words[i], SPLIT_K, split, own);
      }
      store(first * SPLIT_K + turn, sums, SPLIT_K);
#pragma unroll
      for (int i = 0; i < BATCH; ++i)
        if ((first + i) * SPLIT_K + turn < blocks)
          clean(slots((first + i) * SPLIT_K + turn), SPLIT_K, split);
    }
  } else {
#pragma unroll 1
    for (int j = 0; j < blocks; ++j) {
      if ((j * STEP + warp) % SPLIT_K != split) continue;
      constexpr int BATCH = 16;  // splits in flight at once
      float own[4], sums[1][4] = {{0.0f, 0.0f, 0.0f, 0.0f}};
      select(own, parts, j);
#pragma unroll
      for (int first = 0; first < SPLIT_K; first += BATCH) {
        uint4 words[BATCH];
        const int count = SPLIT_K - first < BATCH ? SPLIT_K - first : BATCH;
#pragma unroll
        for (int i = 0; i < BATCH; ++i)
          words[i] = make_uint4(kNothing, kNothing, kNothing, kNothing);
        bool missing;
        do {
          missing = false;
#pragma unroll
          for (int i = 0; i < BATCH; ++i) {
            if (i < count && first + i != split && incomplete(words[i])) {
              words[i] = ptx::load_relaxed(slots(j) + (first + i) * kFragmentBytes);
              missing = true;
            }
          }
        } while (missing);
        __syncwarp();
        add_in_order(sums[0], words, count, split - first, own);
      }
      store(j, sums, 1);
      clean(slots(j), SPLIT_K, split);
    }
  }
}

// ---- through the cluster's shared memory (sm_90 and later); rank in the cluster == split

// Bytes that warp `warp` of block `split` gets from its siblings for one tile.
template <int SPLIT_K>
__forceinline__ u32 cluster_bytes(int blocks, int split, int warp) {
  const int turn = turn_of<SPLIT_K>(split, warp);
  const int owned = turn < blocks ? (blocks - turn + SPLIT_K - 1) / SPLIT_K : 0;
  return owned * (SPLIT_K - 1) * kFragmentBytes;
}

// As reduce(). Once per launch.
// @param slots    shared address of [8 warps][groups][SPLIT_K - 1][512 bytes], alike in all blocks
// @param arrived  shared address of this warp's barrier, armed with cluster_bytes(), alike in all
template <int SPLIT_K, int TOKEN_BLOCKS, class Store>
__forceinline__ void reduce_in_cluster(const float (&parts)[TOKEN_BLOCKS][4], u32 slots,
                                       u32 arrived, int blocks, int split, int warp, int lane,
                                       Store store) {
  static_assert(SPLIT_K <= 8, "a portable cluster has 8 blocks at most");
  constexpr int GROUPS = (TOKEN_BLOCKS + SPLIT_K - 1) / SPLIT_K;
  const int turn = turn_of<SPLIT_K>(split, warp);
  const u32 mine = slots + warp * (GROUPS * (SPLIT_K - 1) * kFragmentBytes) + lane * 16;
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    if (j >= blocks || j % SPLIT_K == turn) continue;
    const u32 owner = (j + warp) % SPLIT_K;
    const int place = split < static_cast<int>(owner) ? split : split - 1;
    barrier::store_remote(mine + (j / SPLIT_K * (SPLIT_K - 1) + place) * kFragmentBytes,
                          as_words(parts[j]), arrived, owner);
  }
  if (turn >= blocks) return;
  barrier::wait(arrived, 0);
  constexpr int BATCH = GROUPS < 4 ? GROUPS : 4;
#pragma unroll
  for (int first = 0; first < GROUPS; first += BATCH) {
    float sums[BATCH][4];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int group = first + i;
      float own[4];
      select(own, parts, group * SPLIT_K + turn);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[i][e] = 0.0f;
      if (group * SPLIT_K + turn >= blocks) continue;
#pragma unroll
      for (int s = 0; s < SPLIT_K; ++s) {
        const int place = s < split ? s : s - 1;
        add(sums[i], s == split ? as_words(own)
                                : ptx::load_shared_words(mine + (group * (SPLIT_K - 1) + place) *
                                                                    kFragmentBytes));
      }
    }
    store(first * SPLIT_K + turn, sums, SPLIT_K);
  }
}

}  // namespace ingot::kernels::split_k
