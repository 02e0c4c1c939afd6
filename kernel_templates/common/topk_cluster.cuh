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
#include "common/launch.cuh"
#include "common/topk_exchange.cuh"

namespace ingot::kernels::topk_cluster {

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
  u32 before[PAIRS], totals[PAIRS];    // those of lower lanes; of the warp
  u32 above_bits = 0, equal_bits = 0;  // by item
  Count of_warp{0, 0};
  const auto is_equal = [&](u32 key) { return threshold.equal > 0 && key == threshold.key; };
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    above_bits |= keys[i] > threshold.key ? 1u << i : 0;
    equal_bits |= keys[i] == threshold.key ? 1u << i : 0;
  }
  if (threshold.equal == 0) equal_bits = 0;
#pragma unroll
  for (int p = 0; p < PAIRS; ++p) {
    const auto count = [&](u32 bits, int v) {
      return static_cast<u32>(__popc(bits >> 4 * v & (v < VECTORS ? 15u : 0)));
    };
    const u32 own = count(above_bits, 2 * p) | count(above_bits, 2 * p + 1) << 8 |
                    count(equal_bits, 2 * p) << 16 | count(equal_bits, 2 * p + 1) << 24;
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
#pragma unroll 1
    for (u32 bits = (above_bits | equal_bits) >> 4 * v & 15u; bits != 0; bits &= bits - 1) {
      const int i = __ffs(bits) - 1;
      const bool equal = equal_bits >> (4 * v + i) & 1u;
      if (!equal || here.equal < threshold.equal) {
        const int entry = base + layout.offset(v) + i;
        indices[here.above + min(here.equal, threshold.equal)] =
            STAGED_PAGES ? shared.pages[entry / PAGE_ENTRIES - base / PAGE_ENTRIES] * PAGE_ENTRIES +
                               entry % PAGE_ENTRIES
                         : place_in_pool(args, sequence, entry);
      }
      here.above += equal ? 0 : 1;
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
  const float* const scores = args.scores + row * args.score_stride;
  // Most rows are about as long as the launch allows.
  const int assumed = static_cast<int>(min(args.score_stride, static_cast<i64>(REACH)));
  Layout layout(assumed);
  const bool early =
      EARLY && gridDim.y * args.score_stride <= EARLY_SCORES && layout.share <= EARLY_SHARE;
  u32 keys[ITEMS], nans = 0;  // first the bits of the scores
  wait_for_predecessor();
  const int count = args.counts[row];
  const int sequence = MAP_PAGES ? args.sequences[row] : 0;
  if (early) load(keys, scores, layout, places_here(layout, assumed));
#pragma unroll
  for (int i = 0; i < BINS; i += THREADS)
    shared.bins[i + thread] = 0;
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
  for (int v = 0; v < VECTORS; ++v) {
    const int present = v < layout.vectors ? here - layout.offset(v) : 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float score = __uint_as_float(keys[4 * v + i]);
      nans += i < present && score != score ? 1 : 0;
      keys[4 * v + i] = i < present ? key_of(score) : ABSENT;
    }
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
