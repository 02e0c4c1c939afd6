#pragma once
// The highest scores of a row by the CLUSTER blocks of a cluster, each of which has an equal share
// of the row in registers. The family's parameters are in scope; sm_90 and later.
//
// 1. Every group of threads hands the largest of its keys to all blocks. The TOPK-th largest of
//    those 2 * TOPK maxima bounds the selection from below, and every block finds it for itself.
// 2. Every block hands its keys that are not below the bound, some 700 in all of independent
//    scores, to all blocks; each finds the threshold among them for itself, and how many are
//    selected in the blocks before it.
// 3. A block's own keys that are selected follow at once: places rise with vectors and lanes of a
//    warp, then with warps, so that sums over those give the ranks.
// What is handed over completes on a barrier of the block that gets it: two exchanges, no fence.
//
// A list that overflows (equal scores, sorted ones) is given up by all blocks alike. Then keys are
// counted from registers and the blocks' bins are summed through shared memory, pass by pass:
// slower, still exact.
#include "common/cluster.cuh"
#include "common/launch.cuh"
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
  for (int first = 0; first < (fours + 1) * CLUSTER; first += 32) {
    const int four = (first + lane) / CLUSTER, to = (first + lane) % CLUSTER;
    uint4 words;
    words.x = __shfl_sync(0xffffffffu, largest, four * 4 * lanes);
    words.y = __shfl_sync(0xffffffffu, largest, four * 4 * lanes + lanes);
    words.z = __shfl_sync(0xffffffffu, largest, four * 4 * lanes + 2 * lanes);
    words.w = __shfl_sync(0xffffffffu, largest, four * 4 * lanes + 3 * lanes);
    if (four == fours) {
      barrier::store_remote(ptx::shared_address(&shared.ranges[rank * WARPS + warp]),
                            make_uint4(most, least, 0, 0), here, to ^ rank);
    } else if (const int at = 4 * (warp * fours + four); four < fours && at < MAXIMA) {
      barrier::store_remote(ptx::shared_address(&shared.maxima[rank * MAXIMA + at]), words, here,
                            to ^ rank);
    }
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
  for (int i = thread; i < (vectors + 1) * CLUSTER; i += THREADS) {
    const int vector = i / CLUSTER, other = (i % CLUSTER) ^ rank;
    if (other == rank) continue;
    const uint4 four = vector == 0 ? make_uint4(listed, 0, 0, 0)
                                   : *reinterpret_cast<const uint4*>(own.keys + 4 * (vector - 1));
    barrier::store_remote(to + 16 * vector, four, here, other);
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
#pragma unroll 2
    for (int i = part; i < count; i += 32 * SEGMENT_WARPS)
      visit(shared.segments[from].keys[i]);
  }
};

// The `wanted`-th largest of up to FEW keys, by each warp alike.
__forceinline__ Threshold rank_few(u32 key, u32 count, u32 wanted) {
  u32 greater = 0, same = 0;
  for (u32 i = 0; i < count; ++i) {
    const u32 other = __shfl_sync(0xffffffffu, key, i);
    greater += other > key ? 1 : 0;
    same += other == key ? 1 : 0;
  }
  const bool is_it = threadIdx.x % 32 < count && greater < wanted && wanted <= greater + same;
  const int at = __ffs(__ballot_sync(0xffffffffu, is_it)) - 1;
  return {__shfl_sync(0xffffffffu, key, at), wanted - __shfl_sync(0xffffffffu, greater, at)};
}

// Of the listed keys.
__forceinline__ Threshold find_threshold(Storage& shared, const Listed& listed, Bound bound) {
  u32 wanted = TOPK, lowest = bound.key, last = bound.largest - bound.key;
  int shift = bits_above_bins(last);
  while (true) {
    listed.for_each(shared, [&](u32 key) {
      const u32 distance = key - lowest;  // of a smaller key: beyond all
      if (distance <= last) atomicAdd(&shared.bins[distance >> shift], 1u);
    });
    const Cut cut = find_bin(shared, wanted);
    wanted -= cut.above;
    lowest += cut.bin << shift;
    if (cut.inside == wanted) return {lowest - 1, 0};
    if (shift == 0) return {lowest, wanted};
    last = (1u << shift) - 1;
    if (cut.inside <= FEW) {
      listed.for_each(shared, [&](u32 key) {
        if (key - lowest <= last) shared.few[atomicAdd(&shared.few_listed, 1u)] = key;
      });
      __syncthreads();
      const u32 lane = threadIdx.x % 32;
      return rank_few(lane < cut.inside ? shared.few[lane] : ABSENT, cut.inside, wanted);
    }
    shift = max(shift - BIN_BITS, 0);
  }
}

// Adds the other blocks' bins to this block's own. Begins and ends with a barrier of the cluster.
__forceinline__ void sum_bins(Storage& shared) {
  constexpr int OWN = BINS / THREADS;
  u32 sums[OWN];
#pragma unroll
  for (int i = 0; i < OWN; ++i)
    sums[i] = 0;
  cluster::sync_cluster();
  for (int other = 0; other < CLUSTER; ++other)
#pragma unroll
    for (int i = 0; i < OWN; ++i)
      sums[i] +=
          cluster::load_remote(ptx::shared_address(&shared.bins[threadIdx.x + i * THREADS]), other);
  cluster::sync_cluster();
#pragma unroll
  for (int i = 0; i < OWN; ++i)
    shared.bins[threadIdx.x + i * THREADS] = sums[i];
}

// Of all keys, whatever they are.
__forceinline__ Threshold find_threshold(Storage& shared, const u32 (&keys)[ITEMS], Bound bound) {
  u32 wanted = TOPK, lowest = bound.key, last = bound.largest - bound.key;
  int shift = bits_above_bins(last);
  while (true) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const u32 distance = keys[i] - lowest, bin = distance >> shift;
      const bool counts = distance <= last;
      // Many equal keys: one addition for the warp.
      const u32 first = __shfl_sync(0xffffffffu, bin, 0);
      if (__ballot_sync(0xffffffffu, counts && bin == first) == 0xffffffffu) {
        if (threadIdx.x % 32 == 0) atomicAdd(&shared.bins[bin], 32u);
      } else if (counts) {
        atomicAdd(&shared.bins[bin], 1u);
      }
    }
    sum_bins(shared);
    const Cut cut = find_bin(shared, wanted);
    wanted -= cut.above;
    lowest += cut.bin << shift;
    if (cut.inside == wanted) return {lowest - 1, 0};
    if (shift == 0) return {lowest, wanted};
    last = (1u << shift) - 1;
    shift = max(shift - BIN_BITS, 0);
  }
}

struct Count {
  u32 above, equal;
};

// Selected keys of a thread by its vectors, four counts of a byte in a word: of vectors 2p and
// 2p + 1 those above the threshold, then those equal to it.
constexpr int PAIRS = (VECTORS + 1) / 2;
__forceinline__ u32 field(u32 word, int v, bool equal) {
  return word >> (v % 2 * 8 + (equal ? 16 : 0)) & 0xffu;
}

// Writes the places of this block's keys that are selected. Ranks are by place.
__forceinline__ void emit(const IndexerTopkArgs& args, Storage& shared, const u32 (&keys)[ITEMS],
                          const Layout& layout, const Listed& listed, Threshold threshold,
                          int sequence, int page) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x;
  u32 before[PAIRS], totals[PAIRS];  // those of lower lanes; of the warp
  Count of_warp{0, 0};
  const auto is_equal = [&](u32 key) { return threshold.equal > 0 && key == threshold.key; };
#pragma unroll
  for (int p = 0; p < PAIRS; ++p) {
    u32 own = 0;
#pragma unroll
    for (int i = 8 * p; i < 8 * p + 8 && i < ITEMS; ++i) {
      own += keys[i] > threshold.key ? 1u << (i / 4 % 2 * 8) : 0;
      own += is_equal(keys[i]) ? 1u << (i / 4 % 2 * 8 + 16) : 0;
    }
    u32 sum = own;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const u32 other = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += other;
    }
    before[p] = sum - own;
    totals[p] = __shfl_sync(0xffffffffu, sum, 31);
    of_warp.above += field(totals[p], 0, false) + field(totals[p], 1, false);
    of_warp.equal += field(totals[p], 0, true) + field(totals[p], 1, true);
  }
  if (lane == 0) shared.warp_sums[warp] = of_warp.above | of_warp.equal << 16;
  u32 lower = 0;  // those in the lists of lower blocks
  if (!listed.overflow && listed.from < rank)
    listed.for_each(shared, [&](u32 key) {
      lower += key > threshold.key ? 1u : is_equal(key) ? 1u << 16 : 0;
    });
  lower = __reduce_add_sync(0xffffffffu, lower);
  if (lane == 0) shared.lower_sums[warp] = lower;
  if (STAGED_PAGES) shared.pages[threadIdx.x] = page;
  __syncthreads();
  const auto sum_of_warps = [&](const u32* sums, int warps) {
    const u32 sum = __reduce_add_sync(0xffffffffu, lane < warps ? sums[lane] : 0);
    return Count{sum & 0xffffu, sum >> 16};
  };
  Count at = sum_of_warps(shared.warp_sums, warp);
  Count blocks = sum_of_warps(shared.lower_sums, WARPS);
  if (listed.overflow) {
    const Count own = sum_of_warps(shared.warp_sums, WARPS);
    if (threadIdx.x == 0) {
      shared.total_above = own.above;
      shared.total_equal = own.equal;
    }
    cluster::sync_cluster();
    blocks = {0, 0};
    for (int other = 0; other < rank; ++other) {
      blocks.above += cluster::load_remote(ptx::shared_address(&shared.total_above), other);
      blocks.equal += cluster::load_remote(ptx::shared_address(&shared.total_equal), other);
    }
    cluster::sync_cluster();  // nobody leaves before all have read
  }
  at.above += blocks.above;
  at.equal += blocks.equal;

  int* const indices = args.indices + static_cast<i64>(blockIdx.y) * TOPK;
  const int base = layout.share * rank;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    Count here{at.above + field(before[v / 2], v, false), at.equal + field(before[v / 2], v, true)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 key = keys[4 * v + i];
      const bool above = key > threshold.key, equal = is_equal(key);
      if (above || (equal && here.equal < threshold.equal)) {
        const int entry = base + layout.offset(v) + i;
        indices[here.above + min(here.equal, threshold.equal)] =
            STAGED_PAGES ? shared.pages[entry / PAGE_ENTRIES - base / PAGE_ENTRIES] * PAGE_ENTRIES +
                               entry % PAGE_ENTRIES
                         : place_in_pool(args, sequence, entry);
      }
      here.above += above ? 1 : 0;
      here.equal += equal ? 1 : 0;
    }
    at.above += field(totals[v / 2], v, false);
    at.equal += field(totals[v / 2], v, true);
  }
}

__forceinline__ void select(const IndexerTopkArgs& args) {
  Storage& shared = *reinterpret_cast<Storage*>(ptx::dynamic_shared_memory());
  const int thread = threadIdx.x, rank = blockIdx.x, row = blockIdx.y;
  if (thread == 0) {
    barrier::init(ptx::shared_address(&shared.maxima_here), 1);
    barrier::init(ptx::shared_address(&shared.lists_here), CLUSTER);
    barrier::publish_init();
    barrier::arrive_expect(ptx::shared_address(&shared.maxima_here),
                           CLUSTER * (MAXIMA * 4 + WARPS * 16));
    shared.listed = shared.few_listed = 0;
  }
  barrier::arrive_cluster();
  wait_for_predecessor();

  const int count = args.counts[row];
  const int sequence = MAP_PAGES ? args.sequences[row] : 0;
  const float* const scores = args.scores + row * args.score_stride;
  // Most rows are about as long as the launch allows.
  const int assumed = static_cast<int>(min(args.score_stride, static_cast<i64>(REACH)));
  Layout layout(assumed);
  const bool early =
      EARLY && gridDim.y * args.score_stride <= EARLY_SCORES && layout.share <= EARLY_SHARE;
  u32 keys[ITEMS], nans = 0;  // first the bits of the scores
  if (early) load(keys, scores, layout, places_here(layout, assumed));
  for (int i = thread; i < BINS; i += THREADS)
    shared.bins[i] = 0;
  __syncthreads();
  barrier::wait_cluster();  // the siblings' barriers are set up
  if (count <= TOPK) {
    if (rank != 0) return;
    if (thread == 0) args.selected_counts[row] = count;
    for (int i = thread; i < TOPK; i += THREADS)
      args.indices[static_cast<i64>(row) * TOPK + i] =
          i < count ? place_in_pool(args, sequence, i) : -1;
    return;
  }
  if (!early || 4 * static_cast<i64>(count) <= 3 * static_cast<i64>(assumed)) {
    layout = Layout(count);
    load(keys, scores, layout, places_here(layout, count));
  }
  const int here = places_here(layout, count);
  int page = 0;  // of the share's page `thread`; asked for long before it is needed
  if (STAGED_PAGES) {
    const int at = layout.share * rank / PAGE_ENTRIES + thread;
    if (here > 0 && at <= (layout.share * rank + here - 1) / PAGE_ENTRIES)
      page = args.page_table[static_cast<i64>(sequence) * args.page_stride + at];
  }
  if (rank == 0 && thread == 0) args.selected_counts[row] = TOPK;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const float score = __uint_as_float(keys[i]);
    const bool present = i / 4 < layout.vectors && layout.offset(i / 4) + i % 4 < here;
    keys[i] = present ? key_of(score) : ABSENT;
    nans += present && score != score ? 1 : 0;
  }
  send_maxima(shared, keys, layout);
  nans = __reduce_add_sync(0xffffffffu, nans);
  if (nans > 0 && thread % 32 == 0) atomicAdd(&args.nan_counts[row], nans);
  const Bound bound = find_bound(shared);
  send_list(shared, keys, bound.key);
  const Listed listed(shared);
  const Threshold threshold =
      listed.overflow ? find_threshold(shared, keys, bound) : find_threshold(shared, listed, bound);
  emit(args, shared, keys, layout, listed, threshold, sequence, page);
}

}  // namespace ingot::kernels::topk_cluster
