#pragma once
// What the blocks of a cluster hand to each other for common/topk_cluster.cuh: maxima of groups of
// keys, then lists of keys. The family's parameters are in scope.
#include "common/cluster.cuh"
#include "common/ptx.cuh"
#include "common/topk_keys.cuh"

namespace ingot::kernels::topk_cluster {

constexpr int WARPS = THREADS / 32;
constexpr int MAXIMA = indexer_topk_cluster_maxima(TOPK) / CLUSTER;  // of a block
constexpr int LISTED = indexer_topk_cluster_listed(TOPK);            // keys of a block, at most
constexpr int REACH = CLUSTER * CHUNK;
// Warps that read the list of one block.
constexpr int SEGMENT_WARPS = WARPS / CLUSTER > 0 ? WARPS / CLUSTER : 1;
constexpr int FEW = 32;  // keys that a warp ranks by itself
// Of a launch whose rows and shares are so short scores are asked for before the count is known:
// what that may read for nothing is less than the latency it hides.
constexpr i64 EARLY_SCORES = 1 << 18;
constexpr int EARLY_SHARE = 8192;
constexpr bool EARLY = CHUNK <= 2 * EARLY_SHARE;
// The share's page numbers are copied to shared memory, where there are few.
constexpr bool STAGED_PAGES = MAP_PAGES && CHUNK / PAGE_ENTRIES + 2 <= THREADS;
static_assert(CLUSTER == 1 || (WARPS >= CLUSTER && (CLUSTER & (CLUSTER - 1)) == 0 && CLUSTER <= 8),
              "a portable cluster; each block's list has warps of its own");
static_assert(CLUSTER == 1 || ((TOPK & (TOPK - 1)) == 0 && MAXIMA <= THREADS &&
                               THREADS <= 8 * MAXIMA && MAXIMA * CLUSTER == 2 * TOPK),
              "four groups of threads that give a maximum each lie in one warp");

struct Segment {
  u32 count, unused[3];
  u32 keys[LISTED];
};
struct Storage {
  u64 maxima_here, lists_here;  // barriers of what the blocks exchange
  u32 bins[BINS];
  u32 maxima[CLUSTER * MAXIMA];
  uint4 ranges[CLUSTER * WARPS];  // largest and smallest maximum of each warp of each block
  Segment segments[CLUSTER];
  int pages[THREADS];
  u32 warp_sums[32], lower_sums[32];
  u32 few[FEW];
  Cut cut;
  u32 listed, few_listed, total_above, total_equal, unused;
};
static_assert(CLUSTER == 1 ||
              sizeof(Storage) == indexer_topk_cluster_smem_bytes(CLUSTER, THREADS, TOPK));

// The places that a block has of a row: `share` from share * rank on; each warp has `vectors` times
// 128 of them one after the other.
struct Layout {
  int share, vectors;

  __forceinline__ explicit Layout(int count) {
    share = min((count + 4 * CLUSTER - 1) / (4 * CLUSTER) * 4, CHUNK);
    vectors = (share + 4 * THREADS - 1) / (4 * THREADS);
  }
  __forceinline__ int offset(int v) const {
    return (static_cast<int>(threadIdx.x) / 32 * vectors + v) * 128 + threadIdx.x % 32 * 4;
  }
};

// Bits of scores; zero from place `here` of the share on.
__forceinline__ void load(u32 (&bits)[ITEMS], const float* row, const Layout& layout, int here) {
  const float* const from = row + layout.share * static_cast<int>(blockIdx.x);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    uint4 four = make_uint4(0, 0, 0, 0);
    if (v < layout.vectors && layout.offset(v) < here)
      four = *reinterpret_cast<const uint4*>(from + layout.offset(v));
    bits[4 * v] = four.x;
    bits[4 * v + 1] = four.y;
    bits[4 * v + 2] = four.z;
    bits[4 * v + 3] = four.w;
  }
}
__forceinline__ int places_here(const Layout& layout, int count) {
  return min(count - layout.share * static_cast<int>(blockIdx.x), layout.share);
}

// Hands the maxima of the groups to all blocks; the groups follow the number of threads with keys.
__forceinline__ void send_maxima(Storage& shared, const u32 (&keys)[ITEMS], const Layout& layout) {
  const int thread = threadIdx.x, rank = blockIdx.x, lane = thread % 32, warp = thread / 32;
  const int active = (layout.share + 128 * layout.vectors - 1) / (128 * layout.vectors) * 32;
  int lanes = 1;
  while (lanes * MAXIMA < min(active, THREADS))
    lanes *= 2;
  u32 largest = keys[0];
#pragma unroll
  for (int i = 1; i < ITEMS; ++i)
    largest = max(largest, keys[i]);
  for (int distance = 1; distance < lanes; distance *= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  const u32 most = __reduce_max_sync(0xffffffffu, largest);
  const u32 least = __reduce_min_sync(0xffffffffu, largest == ABSENT ? 0xffffffffu : largest);

  // Four maxima or the warp's range to one block in a store: what arrives is counted one by one.
  const u32 here = ptx::shared_address(&shared.maxima_here);
  const int fours = 8 / lanes;
#pragma unroll 1
  for (int first = 0; first < (fours + 1) * CLUSTER; first += 32) {
    const int four = (first + lane) / CLUSTER, at = 4 * (warp * fours + four);
    uint4 words;
    words.x = __shfl_sync(0xffffffffu, largest, four * 4 * lanes);
    words.y = __shfl_sync(0xffffffffu, largest, four * 4 * lanes + lanes);
    words.z = __shfl_sync(0xffffffffu, largest, four * 4 * lanes + 2 * lanes);
    words.w = __shfl_sync(0xffffffffu, largest, four * 4 * lanes + 3 * lanes);
    const bool is_range = four == fours;
    if (is_range) words = make_uint4(most, least, 0, 0);
    if (is_range || (four < fours && at < MAXIMA))
      barrier::store_remote(is_range ? ptx::shared_address(&shared.ranges[rank * WARPS + warp])
                                     : ptx::shared_address(&shared.maxima[rank * MAXIMA]) + 4 * at,
                            words, here, (first + lane) % CLUSTER ^ rank);
  }
}

// No key that is selected is below the bound, and none of all keys is above `largest`.
struct Bound {
  u32 key, largest;
};
__forceinline__ Bound find_bound(Storage& shared) {
  barrier::wait(ptx::shared_address(&shared.maxima_here), 0);
  u32 largest = 0, smallest = 0xffffffffu;
#pragma unroll
  for (int i = 0; i < CLUSTER * WARPS; i += 32) {
    const int at = i + threadIdx.x % 32;
    if (CLUSTER * WARPS % 32 != 0 && at >= CLUSTER * WARPS) break;
    const uint2 range = *reinterpret_cast<const uint2*>(&shared.ranges[at]);
    largest = max(largest, range.x);
    smallest = min(smallest, range.y);
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  smallest = __reduce_min_sync(0xffffffffu, smallest);
  const int shift = bits_above_bins(largest - smallest);
#pragma unroll
  for (int i = 0; i < CLUSTER * MAXIMA; i += THREADS) {
    const int at = i + threadIdx.x;
    if (CLUSTER * MAXIMA % THREADS != 0 && at >= CLUSTER * MAXIMA) break;
    const u32 key = shared.maxima[at];
    if (key != ABSENT) atomicAdd(&shared.bins[(key - smallest) >> shift], 1u);
  }
  const Cut cut = find_bin(shared, TOPK);
  return {cut.inside == 0 ? LOWEST : max(smallest + (cut.bin << shift), LOWEST), largest};
}

// Lists the keys that are not below the bound, and hands the list to all blocks.
__forceinline__ void send_list(Storage& shared, const u32 (&keys)[ITEMS], u32 bound) {
  const int thread = threadIdx.x, rank = blockIdx.x, lane = thread % 32;
  Segment& own = shared.segments[rank];
  u32 found = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    found += keys[i] >= bound ? 1 : 0;
  const u32 of_warp = __reduce_add_sync(0xffffffffu, found);
  if (of_warp > 0) {
    u32 first = 0, at = found;
    if (lane == 0) first = atomicAdd(&shared.listed, of_warp);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const u32 other = __shfl_up_sync(0xffffffffu, at, distance);
      if (lane >= distance) at += other;
    }
    at += __shfl_sync(0xffffffffu, first, 0) - found;
    if (found > 0 && at + found <= LISTED) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i)
        if (keys[i] >= bound) own.keys[at++] = keys[i];
    }
  }
  __syncthreads();
  const u32 listed = shared.listed, here = ptx::shared_address(&shared.lists_here);
  const int vectors = listed <= LISTED ? static_cast<int>(listed + 3) / 4 : 0;
  const u32 to = ptx::shared_address(&own);
  const int other =
      thread / 32 / SEGMENT_WARPS ^ rank;  // this warp's; blocks share the warps evenly
  if (other != rank && thread / 32 < CLUSTER * SEGMENT_WARPS) {
#pragma unroll 1
    for (int i = thread % (32 * SEGMENT_WARPS); i <= vectors; i += 32 * SEGMENT_WARPS)
      barrier::store_remote(to + 16 * i,
                            i == 0 ? make_uint4(listed, 0, 0, 0)
                                   : *reinterpret_cast<const uint4*>(own.keys + 4 * (i - 1)),
                            here, other);
  }
  if (thread < CLUSTER)
    cluster::arrive_expect_remote(here, thread == rank ? 0 : 16 * (vectors + 1), thread);
}

// What has arrived in the list that this thread's warp reads: block `from`'s.
struct Listed {
  int from, part, count;
  bool overflow;  // of any list

  __forceinline__ explicit Listed(const Storage& shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x;
    barrier::wait(ptx::shared_address(&shared.lists_here), 0);
    u32 of = 0;
    if (lane < CLUSTER) of = lane == rank ? shared.listed : shared.segments[lane].count;
    overflow = __any_sync(0xffffffffu, of > LISTED);
    from = warp / SEGMENT_WARPS;
    part = warp % SEGMENT_WARPS * 32 + lane;
    count = static_cast<int>(__shfl_sync(0xffffffffu, of, from));
  }
  template <class Visit>
  __forceinline__ void for_each(const Storage& shared, Visit visit) const {
#pragma unroll 1
    for (int i = part; i < count; i += 32 * SEGMENT_WARPS)
      visit(shared.segments[from].keys[i]);
  }
};

}  // namespace ingot::kernels::topk_cluster
