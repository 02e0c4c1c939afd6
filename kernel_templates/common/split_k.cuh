#pragma once
// Reduction of split-K partial sums between the SPLIT_K blocks that share a tile, always in the
// order of the splits: results repeat to the bit and do not depend on a token's place in the batch.
//
// Partial sums are mma fragments of 16 rows x 8 columns, four floats per lane; VECTOR neighbouring
// ones are a unit. Of the blocks that share a tile, one owns a unit: it sums it, the others hand
// theirs to it.
//
// Through L2 (reduce): no flags, every 32-bit word of the workspace is its own flag. A word that
// nobody has written holds kNothing, a NaN that no arithmetic instruction produces (those give
// 0x7fffffff); the block that reads a word puts kNothing back, so the workspace is clean for the
// next launch on the stream. All blocks of the grid must be resident at once: owners wait.
// Through L2 by whoever comes last (reduce_by_last): nobody waits, so the blocks need not run at
// the same time, and other launches may hold the card. Costs two trips more: the counter and the
// sums. Through the shared memory of a cluster (reduce_in_cluster): what arrives completes on a
// barrier of the owner's warp.
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

// Unit `unit`, known at run time only, without sending the array to memory.
template <int VECTOR, int COUNT>
__forceinline__ void select(float (&own)[VECTOR][4], const float (&parts)[COUNT][4], int unit) {
#pragma unroll
  for (int n = 0; n < COUNT; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      own[n % VECTOR][e] = n < VECTOR || n / VECTOR == unit ? parts[n][e] : own[n % VECTOR][e];
}

// With up to 8 splits, block (unit + warp) % SPLIT_K owns unit `unit` of warp `warp`: of SPLIT_K
// neighbouring units (a group) each block owns one of each warp, block `turn`.
template <int SPLIT_K>
__forceinline__ int turn_of(int split, int warp) {
  return static_cast<u32>(split + 8 * SPLIT_K - warp) % SPLIT_K;
}

// Called by the 8 warps of a block with their fragments of one tile. `store(unit, sums, stride)` is
// called by whole warps with units unit, unit + stride, ... that this block owns; those from
// `units` on are garbage.
// @param units  in use; the others are not exchanged
template <int SPLIT_K, int VECTOR, int COUNT, class Store>
__forceinline__ void reduce(const float (&parts)[COUNT][4], void* workspace, int tile, int units,
                            int split, int warp, int lane, Store store) {
  constexpr int UNITS = COUNT / VECTOR, UNIT_BYTES = VECTOR * kFragmentBytes;
  const auto slots = [&](int unit) {  // this lane's slot of split 0
    const i64 at = static_cast<i64>(tile) * UNITS * 8 + unit * 8 + warp;
    return static_cast<char*>(workspace) + at * SPLIT_K * UNIT_BYTES + lane * 16;
  };
  // With more splits than warps, owners are spread over all units.
  constexpr int STEP = SPLIT_K <= 8 ? 1 : 8;
#pragma unroll
  for (int n = 0; n < COUNT; ++n)
    if (n / VECTOR < units && (n / VECTOR * STEP + warp) % SPLIT_K != split)
      ptx::store_relaxed(slots(n / VECTOR) + split * UNIT_BYTES + n % VECTOR * kFragmentBytes,
                         as_words(parts[n]));

  constexpr int LOADS = COUNT > 8 ? 8 : 16;  // in flight, four registers each
  constexpr int WAYS = SPLIT_K * VECTOR < LOADS ? SPLIT_K : LOADS / VECTOR;  // splits in flight
  constexpr int GROUPS = SPLIT_K <= 8 ? (UNITS + SPLIT_K - 1) / SPLIT_K : UNITS;
  constexpr int MOST = LOADS / (WAYS * VECTOR) > 0 ? LOADS / (WAYS * VECTOR) : 1;
  constexpr int BATCH = SPLIT_K > WAYS ? 1 : MOST < GROUPS ? MOST : GROUPS;
  constexpr int STRIDE = SPLIT_K <= 8 ? SPLIT_K : 1;
  const int turn = SPLIT_K <= 8 ? turn_of<SPLIT_K>(split, warp) : 0;
#pragma unroll 1
  for (int first = 0; first < GROUPS; first += BATCH) {
    const int unit = first * STRIDE + turn;
    if (SPLIT_K > 8 && (unit * STEP + warp) % SPLIT_K != split) continue;
    if (unit >= units) break;
    float sums[BATCH * VECTOR][4];
#pragma unroll
    for (int n = 0; n < BATCH * VECTOR; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[n][e] = 0.0f;
#pragma unroll
    for (int from = 0; from < SPLIT_K; from += WAYS) {
      uint4 words[WAYS][BATCH * VECTOR];
#pragma unroll
      for (int s = 0; s < WAYS; ++s)
#pragma unroll
        for (int n = 0; n < BATCH * VECTOR; ++n)
          words[s][n] = make_uint4(kNothing, kNothing, kNothing, kNothing);
      // All that are missing are asked for at once, again and again: siblings finish at different
      // times, and a word asked for too early costs a whole trip to L2.
      bool missing;
      do {
        missing = false;
#pragma unroll
        for (int s = 0; s < WAYS; ++s)
#pragma unroll
          for (int n = 0; n < BATCH * VECTOR; ++n) {
            const int at = unit + n / VECTOR * STRIDE;
            if (from + s < SPLIT_K && from + s != split && at < units && incomplete(words[s][n])) {
              words[s][n] = ptx::load_relaxed(slots(at) + (from + s) * UNIT_BYTES +
                                              n % VECTOR * kFragmentBytes);
              missing = true;
            }
          }
      } while (missing);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        float own[VECTOR][4];
        select(own, parts, unit + i * STRIDE);
#pragma unroll
        for (int v = 0; v < VECTOR; ++v)
#pragma unroll
          for (int s = 0; s < WAYS; ++s)
            if (from + s < SPLIT_K)
              add(sums[i * VECTOR + v],
                  from + s == split ? as_words(own[v]) : words[s][i * VECTOR + v]);
      }
    }
    store(unit, sums, STRIDE);
#pragma unroll
    for (int n = 0; n < BATCH * VECTOR; ++n) {
      const int at = unit + n / VECTOR * STRIDE;
      for (int s = 0; s < SPLIT_K; ++s)
        if (s != split && at < units)
          ptx::store_relaxed(slots(at) + s * UNIT_BYTES + n % VECTOR * kFragmentBytes,
                             make_uint4(kNothing, kNothing, kNothing, kNothing));
    }
  }
}

// As reduce(), but a warp's units are all summed by the last of the SPLIT_K blocks to get here, and
// `store` is called there alone. The workspace is left as it was, too.
// @param counters  a word of 0xff bytes for each tile and warp, left so
template <int SPLIT_K, int VECTOR, int COUNT, class Store>
__forceinline__ void reduce_by_last(const float (&parts)[COUNT][4], void* workspace, u32* counters,
                                    int tile, int units, int split, int warp, int lane,
                                    Store store) {
  constexpr int UNITS = COUNT / VECTOR, UNIT_BYTES = VECTOR * kFragmentBytes;
  const auto slot = [&](int unit, int from) {  // this lane's
    const i64 at = static_cast<i64>(tile) * UNITS * 8 + unit * 8 + warp;
    return static_cast<char*>(workspace) + (at * SPLIT_K + from) * UNIT_BYTES + lane * 16;
  };
#pragma unroll
  for (int n = 0; n < COUNT; ++n)
    if (n / VECTOR < units)
      ptx::store_relaxed(slot(n / VECTOR, split) + n % VECTOR * kFragmentBytes, as_words(parts[n]));
  __threadfence();
  __syncwarp();
  u32 before = 0;
  if (lane == 0) before = atomicAdd(&counters[tile * 8 + warp], 1u);
  before = __shfl_sync(0xffffffffu, before, 0);
  if (before != static_cast<u32>(SPLIT_K - 2)) return;  // counted from -1
  __threadfence();
  if (lane == 0) counters[tile * 8 + warp] = kNothing;
#pragma unroll 1
  for (int unit = 0; unit < units; ++unit) {
    uint4 words[SPLIT_K][VECTOR];
#pragma unroll
    for (int s = 0; s < SPLIT_K; ++s)
#pragma unroll
      for (int v = 0; v < VECTOR; ++v)
        words[s][v] = ptx::load_relaxed(slot(unit, s) + v * kFragmentBytes);
    float sums[VECTOR][4] = {};
#pragma unroll
    for (int s = 0; s < SPLIT_K; ++s)
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) {
        add(sums[v], words[s][v]);
        ptx::store_relaxed(slot(unit, s) + v * kFragmentBytes,
                           make_uint4(kNothing, kNothing, kNothing, kNothing));
      }
    store(unit, sums, 1);
  }
}

// ---- through the cluster's shared memory (sm_90 and later); rank in the cluster == split

// Bytes that warp `warp` of block `split` gets from its siblings for one tile.
template <int SPLIT_K, int VECTOR>
__forceinline__ u32 cluster_bytes(int units, int split, int warp) {
  const int turn = turn_of<SPLIT_K>(split, warp);
  const u32 owned = turn < units ? static_cast<u32>(units - turn + SPLIT_K - 1) / SPLIT_K : 0;
  return owned * ((SPLIT_K - 1) * VECTOR * kFragmentBytes);
}

// As reduce(). Once per launch.
// @param slots    shared address of [8 warps][groups][SPLIT_K - 1][unit], alike in all blocks
// @param arrived  shared address of this warp's barrier, armed with cluster_bytes(), alike in all
// @param staging  shared address of [8 warps][COUNT][512 bytes] that nobody uses any more; units go
//                 from there in bulk copies, and the block must outlive them (until all blocks of
//                 the cluster have what they wait for). 0: units are stored across directly, 16
//                 bytes at a time, which is faster for a few.
template <int SPLIT_K, int VECTOR, int COUNT, class Store>
__forceinline__ void reduce_in_cluster(const float (&parts)[COUNT][4], u32 slots, u32 arrived,
                                       u32 staging, int units, int split, int warp, int lane,
                                       Store store) {
  static_assert(SPLIT_K <= 8, "a portable cluster has 8 blocks at most");
  constexpr int UNITS = COUNT / VECTOR, UNIT_BYTES = VECTOR * kFragmentBytes;
  constexpr int GROUPS = (UNITS + SPLIT_K - 1) / SPLIT_K;
  const int turn = turn_of<SPLIT_K>(split, warp);
  const u32 mine = slots + warp * (GROUPS * (SPLIT_K - 1) * UNIT_BYTES);
  const auto slot = [&](int unit, int owner, int from) {
    return mine + (unit / SPLIT_K * (SPLIT_K - 1) + (from < owner ? from : from - 1)) * UNIT_BYTES;
  };
  if (staging == 0) {
#pragma unroll
    for (int n = 0; n < COUNT; ++n) {
      const int unit = n / VECTOR, owner = static_cast<u32>(unit + warp) % SPLIT_K;
      if (unit < units && owner != split)
        barrier::store_remote(slot(unit, owner, split) + n % VECTOR * kFragmentBytes + lane * 16,
                              as_words(parts[n]), arrived, owner);
    }
  } else {
    const u32 from = staging + warp * (COUNT * kFragmentBytes);
#pragma unroll
    for (int n = 0; n < COUNT; ++n)
      ptx::store_shared(from + n * kFragmentBytes + lane * 16, as_words(parts[n]));
    barrier::publish_to_async_proxy();
    __syncwarp();
    const int owner = static_cast<u32>(lane + warp) % SPLIT_K;
    if (lane < units && owner != split)
      barrier::copy_remote(slot(lane, owner, split), from + lane * UNIT_BYTES, UNIT_BYTES, arrived,
                           owner);
    __syncwarp();
  }
  if (turn >= units) return;
  barrier::wait(arrived, 0);
  constexpr int BATCH = GROUPS * VECTOR <= 4 ? GROUPS : 4 / VECTOR;
#pragma unroll 1
  for (int first = 0; first < GROUPS; first += BATCH) {
    const int unit = first * SPLIT_K + turn;
    if (unit >= units) break;
    float sums[BATCH * VECTOR][4];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      float own[VECTOR][4];
      select(own, parts, unit + i * SPLIT_K);
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) {
        float(&sum)[4] = sums[i * VECTOR + v];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sum[e] = 0.0f;
        if (unit + i * SPLIT_K >= units) continue;
#pragma unroll
        for (int s = 0; s < SPLIT_K; ++s) {
          if (s == split)
            add(sum, as_words(own[v]));
          else
            add(sum, ptx::load_shared_words(slot(unit + i * SPLIT_K, split, s) +
                                            v * kFragmentBytes + lane * 16));
        }
      }
    }
    store(unit, sums, SPLIT_K);
  }
}

}  // namespace ingot::kernels::split_k
