// The TOPK highest of each row's scores, exactly: of equal scores the lowest entries, NaN as -inf.
// Launch contract (host twin: launch_shape in indexer_topk.space.hpp)
//   grid (chunks, rows)   block (THREADS)   cluster none   arch sm_80 and later
//   smem indexer_topk_smem_bytes(...), dynamic      programmatic dependent launch: yes
//
// A block holds the scores of one chunk in registers, as unsigned integers of the same order. The
// largest of each group of a thread's scores bound the selection from below: at least TOPK scores
// are not under the TOPK-th largest of those. The few scores above the bound are listed in shared
// memory and cut by histograms; many equal ones overflow the list and are cut where they are. A row
// of several chunks is finished by the block that arrives last, which selects from all chunks'
// selections in the same way. Blocks past the row's count have nothing to do and leave.
//
// The selection is a function of the scores alone, so results repeat to the bit; which block
// finishes and in which order candidates are listed does not show.
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "indexer_topk.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "indexer_topk.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int ITEMS = 4 * VECTORS, CHUNK = indexer_topk_chunk(THREADS, VECTORS);
constexpr int BINS = INDEXER_TOPK_BINS, BIN_BITS = 11, LISTED = INDEXER_TOPK_LISTED;
constexpr int LIST = LISTED * THREADS;
// Groups of scores whose maxima bound the selection: about twice as many as are selected, so that
// the bound keeps few.
constexpr int WANTED_GROUPS = (2 * TOPK + THREADS - 1) / THREADS;
constexpr int GROUPS = WANTED_GROUPS >= VECTORS ? VECTORS
                       : WANTED_GROUPS > 2      ? VECTORS / 2
                       : WANTED_GROUPS > 1      ? 2
                                                : 1;
constexpr int GROUP_ITEMS = ITEMS / GROUPS;
static_assert(BINS == 1 << BIN_BITS && BINS % THREADS == 0, "a thread owns whole bins");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "one warp holds the sums of all warps");
static_assert(ITEMS % GROUPS == 0, "groups are of one size");
static_assert(VECTORS <= 8, "a thread owns at most one word of the bitmaps");
static_assert(TOPK % 4 == 0 && TOPK <= CHUNK && TOPK <= THREADS * GROUPS,
              "the maxima of the groups bound the selection");

// Scores as unsigned integers of the same order. An absent score is below all.
constexpr u32 ABSENT = 0, LOWEST = 0x007fffffu;  // LOWEST: -inf

struct Cut {
  u32 bin, above, inside;  // keys in higher bins, and in this one
};
struct SharedStorage {
  u32 bins[BINS];
  u32 listed_keys[LIST];
  u16 listed_places[LIST];
  u32 above[CHUNK / 32], equal[CHUNK / 32];  // by place: above the threshold, and equal to it
  u32 before[CHUNK / 32];                    // those before the word: above, and equal << 16
  u32 warp_sums[32];
  Cut cut;
  u32 largest, smallest, listed, last;
};
static_assert(sizeof(SharedStorage) == indexer_topk_smem_bytes(THREADS, VECTORS));

__forceinline__ u32 key_of(float score) {
  if (score != score) return LOWEST;
  const int bits = __float_as_int(score + 0.0f);  // -0 and 0 are equal
  return static_cast<u32>(bits) ^ (static_cast<u32>(bits >> 31) | 0x80000000u);
}

__forceinline__ int bits_above_bins(u32 range) {
  return max(32 - __clz(static_cast<int>(range)) - BIN_BITS, 0);
}

// Sum of `value` over the threads before this one; all threads of the block call it.
__forceinline__ u32 sum_before(SharedStorage& shared, u32 value) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u32 sum = value;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const u32 other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();
  const u32 others = lane < warp ? shared.warp_sums[lane] : 0;
  return __reduce_add_sync(0xffffffffu, others) + sum - value;
}

// The bin of the `wanted`-th largest of the counted keys, of which there are at least so many.
// Empties the bins. Begins and ends with a barrier.
__forceinline__ Cut find_bin(SharedStorage& shared, u32 wanted) {
  constexpr int OWN = BINS / THREADS;
  __syncthreads();
  u32* const mine = shared.bins + BINS - OWN * (threadIdx.x + 1);
  u32 counts[OWN], total = 0;
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    counts[i] = mine[i];
    mine[i] = 0;
    total += counts[i];
  }
  u32 above = sum_before(shared, total);
  if (above < wanted && wanted <= above + total) {
#pragma unroll
    for (int i = OWN - 1; i >= 0; --i) {
      if (above < wanted && wanted <= above + counts[i])
        shared.cut = {static_cast<u32>(BINS - OWN * (threadIdx.x + 1) + i), above, counts[i]};
      above += counts[i];
    }
  }
  __syncthreads();
  return shared.cut;
}

// The selection: keys above `key`, and the first `equal` of those that are equal to it.
struct Threshold {
  u32 key, equal;
};

// @param keys  of this thread; those below `lowest` do not count, none is above `highest`, and the
//              TOPK-th largest lies between
template <int COUNT>
__forceinline__ Threshold find_threshold(SharedStorage& shared, const u32 (&keys)[COUNT],
                                         u32 lowest, u32 highest) {
  u32 wanted = TOPK, last = highest - lowest;
  int shift = bits_above_bins(last);
  while (true) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const u32 distance = keys[i] - lowest;  // of a smaller key: beyond all
      if (distance <= last) atomicAdd(&shared.bins[distance >> shift], 1u);
    }
    const Cut cut = find_bin(shared, wanted);
    wanted -= cut.above;
    lowest += cut.bin << shift;
    if (cut.inside == wanted) return {lowest - 1, 0};
    if (shift == 0) return {lowest, wanted};
    last = (1u << shift) - 1;
    shift = max(shift - BIN_BITS, 0);
  }
}

// Calls emit(rank, place, key) for each of this thread's keys that is selected; ranks are by place.
template <int COUNT, class Place, class Emit>
__forceinline__ void emit_selected(SharedStorage& shared, const u32 (&keys)[COUNT], Place place_of,
                                   Threshold threshold, Emit emit) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const u32 place = place_of(i), bit = 1u << (place % 32);
    if (keys[i] > threshold.key)
      atomicOr(&shared.above[place / 32], bit);
    else if (threshold.equal > 0 && keys[i] == threshold.key)
      atomicOr(&shared.equal[place / 32], bit);
  }
  __syncthreads();
  const bool has_word = threadIdx.x < CHUNK / 32;
  const u32 word = has_word ? threadIdx.x : 0;
  const u32 mine = __popc(shared.above[word]) | (__popc(shared.equal[word]) << 16);
  const u32 before = sum_before(shared, has_word ? mine : 0);
  if (has_word) shared.before[word] = before;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    if (keys[i] < threshold.key || (threshold.equal == 0 && keys[i] == threshold.key)) continue;
    const u32 place = place_of(i), lower = (1u << (place % 32)) - 1;
    const u32 sums = shared.before[place / 32];
    const u32 above = (sums & 0xffffu) + __popc(shared.above[place / 32] & lower);
    const u32 equal = (sums >> 16) + __popc(shared.equal[place / 32] & lower);
    if (keys[i] > threshold.key)
      emit(above + min(equal, threshold.equal), place, keys[i]);
    else if (equal < threshold.equal)
      emit(above + equal, place, keys[i]);
  }
}

// Selects from this block's keys, more than TOPK of which are present. Places of thread t: 4 *
// (THREADS * v + t) and the three after it.
template <class Emit>
__forceinline__ void select(SharedStorage& shared, const u32 (&keys)[ITEMS], Emit emit) {
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < BINS; i += THREADS)
    shared.bins[i] = 0;
  for (int i = threadIdx.x; i < CHUNK / 32; i += THREADS)
    shared.above[i] = shared.equal[i] = 0;
  if (threadIdx.x == 0) {
    shared.largest = shared.listed = 0;
    shared.smallest = 0xffffffffu;
  }
  __syncthreads();

  u32 maxima[GROUPS], largest = 0, smallest = 0xffffffffu;
#pragma unroll
  for (int g = 0; g < GROUPS; ++g) {
    maxima[g] = keys[g * GROUP_ITEMS];
#pragma unroll
    for (int i = 1; i < GROUP_ITEMS; ++i)
      maxima[g] = max(maxima[g], keys[g * GROUP_ITEMS + i]);
    largest = max(largest, maxima[g]);
    smallest = min(smallest, maxima[g]);
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  smallest = __reduce_min_sync(0xffffffffu, smallest);
  if (lane == 0) {
    atomicMax(&shared.largest, largest);
    atomicMin(&shared.smallest, smallest);
  }
  __syncthreads();
  largest = shared.largest;
  smallest = shared.smallest;
  const int shift = bits_above_bins(largest - smallest);
#pragma unroll
  for (int g = 0; g < GROUPS; ++g)
    atomicAdd(&shared.bins[(maxima[g] - smallest) >> shift], 1u);
  const u32 bound = max(smallest + (find_bin(shared, TOPK).bin << shift), LOWEST);

  u32 found = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i)
    found += keys[i] >= bound ? 1 : 0;
  u32 at = found;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const u32 other = __shfl_up_sync(0xffffffffu, at, distance);
    if (lane >= distance) at += other;
  }
  u32 first = 0;
  if (lane == 31) first = atomicAdd(&shared.listed, at);
  at += __shfl_sync(0xffffffffu, first, 31) - found;
  if (found > 0 && at + found <= LIST) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (keys[i] < bound) continue;
      shared.listed_keys[at] = keys[i];
      shared.listed_places[at++] = static_cast<u16>(4 * (THREADS * (i / 4) + threadIdx.x) + i % 4);
    }
  }
  __syncthreads();
  const u32 listed = shared.listed;
  if (listed <= LIST) {
    u32 few[LISTED];
    u16 places[LISTED];
#pragma unroll
    for (int i = 0; i < LISTED; ++i) {
      const u32 from = THREADS * i + threadIdx.x;
      few[i] = from < listed ? shared.listed_keys[from] : ABSENT;
      places[i] = from < listed ? shared.listed_places[from] : 0;
    }
    const Threshold threshold = find_threshold(shared, few, bound, largest);
    emit_selected(
        shared, few, [&](int i) { return static_cast<u32>(places[i]); }, threshold, emit);
  } else {
    const Threshold threshold = find_threshold(shared, keys, bound, largest);
    emit_selected(
        shared, keys,
        [](int i) { return static_cast<u32>(4 * (THREADS * (i / 4) + threadIdx.x) + i % 4); },
        threshold, emit);
  }
}

__forceinline__ int place_in_pool(const IndexerTopkArgs& args, const int* pages, int entry) {
  return MAP_PAGES ? pages[entry / PAGE_ENTRIES] * PAGE_ENTRIES + entry % PAGE_ENTRIES : entry;
}

// The number of a chunk's candidates.
__forceinline__ int candidates(int count, int chunk) {
  return min(count - chunk * CHUNK, TOPK);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    indexer_topk(const __grid_constant__ IndexerTopkArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int row = blockIdx.y, chunk = blockIdx.x;
  release_successor();
  wait_for_predecessor();
  const int count = args.counts[row];
  const int chunks = indexer_topk_chunks(count, CHUNK);
  if (chunk >= chunks) return;
  int* const indices = args.indices + static_cast<i64>(row) * TOPK;
  const int* pages = nullptr;
  if (MAP_PAGES) pages = args.page_table + static_cast<i64>(args.sequences[row]) * args.page_stride;
  if (chunk == 0 && threadIdx.x == 0) args.selected_counts[row] = min(count, TOPK);
  if (count <= TOPK) {
    for (int i = threadIdx.x; i < TOPK; i += THREADS)
      indices[i] = i < count ? place_in_pool(args, pages, i) : -1;
    return;
  }

  const int here = min(count - chunk * CHUNK, CHUNK);
  const float4* const from = reinterpret_cast<const float4*>(args.scores + row * args.score_stride +
                                                             static_cast<i64>(chunk) * CHUNK);
  float4 scores[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int vector = THREADS * v + threadIdx.x;
    if (4 * vector < here) scores[v] = from[vector];
  }
  u32 keys[ITEMS], nans = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const float values[4] = {scores[v].x, scores[v].y, scores[v].z, scores[v].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool present = 4 * (THREADS * v + static_cast<int>(threadIdx.x)) + i < here;
      keys[4 * v + i] = present ? key_of(values[i]) : ABSENT;
      nans += present && values[i] != values[i] ? 1 : 0;
    }
  }
  nans = __reduce_add_sync(0xffffffffu, nans);
  if (nans > 0 && threadIdx.x % 32 == 0) atomicAdd(&args.nan_counts[row], nans);

  if (chunks == 1) {
    select(shared, keys, [&](u32 rank, u32 place, u32) {
      indices[rank] = place_in_pool(args, pages, static_cast<int>(place));
    });
    return;
  }

  const i64 first = (static_cast<i64>(row) * gridDim.x) * TOPK;  // of the row's candidates
  u32* const row_keys = args.candidate_keys + first;
  int* const row_indices = args.candidate_indices + first;
  const auto keep = [&](u32 rank, u32 place, u32 key) {
    row_keys[chunk * TOPK + rank] = key;
    row_indices[chunk * TOPK + rank] = chunk * CHUNK + static_cast<int>(place);
  };
  if (here > TOPK) {
    select(shared, keys, keep);
  } else {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int place = 4 * (THREADS * (i / 4) + static_cast<int>(threadIdx.x)) + i % 4;
      if (place < here) keep(place, place, keys[i]);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    shared.last = atomicAdd(&args.arrived[row], 1u) == static_cast<u32>(chunks - 1) ? 1 : 0;
  __syncthreads();
  if (shared.last == 0) return;
  __threadfence();
  if (threadIdx.x == 0) args.arrived[row] = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int place = 4 * (THREADS * v + static_cast<int>(threadIdx.x));
    const int of = place / TOPK, left = of < chunks ? candidates(count, of) - place % TOPK : 0;
    uint4 four = make_uint4(ABSENT, ABSENT, ABSENT, ABSENT);
    if (left > 0) four = ptx::load_relaxed(row_keys + place);
    keys[4 * v] = left > 0 ? four.x : ABSENT;
    keys[4 * v + 1] = left > 1 ? four.y : ABSENT;
    keys[4 * v + 2] = left > 2 ? four.z : ABSENT;
    keys[4 * v + 3] = left > 3 ? four.w : ABSENT;
  }
  select(shared, keys, [&](u32 rank, u32 place, u32) {
    const int entry = static_cast<int>(ptx::load_relaxed_word(row_indices + place));
    indices[rank] = place_in_pool(args, pages, entry);
  });
}

}  // namespace ingot::kernels
