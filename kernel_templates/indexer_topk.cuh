// The TOPK highest of each row's scores, exactly: of equal scores the lowest entries, NaN as -inf.
// Launch contract (host twin: launch_shape in indexer_topk.space.hpp)
//   block (THREADS)   programmatic dependent launch: yes
//   CLUSTER 1: grid (chunks, rows)   cluster none   arch sm_80 and later
//     smem indexer_topk_smem_bytes(...), dynamic
//   otherwise: grid (CLUSTER, rows)   cluster (CLUSTER, 1, 1)   arch sm_90 and later
//     smem indexer_topk_cluster_smem_bytes(...), dynamic; rows of CLUSTER chunks at most
//
// With CLUSTER blocks to a row see common/topk_cluster.cuh. Without:
// A block holds the scores of one chunk in registers, as unsigned integers of the same order. The
// largest of each group of a thread's scores bound the selection from below: at least TOPK scores
// are not under the TOPK-th largest of those. The few scores above the bound are listed in shared
// memory and cut by histograms; where many equal ones overflow the list, all are read again
// instead. A row of several chunks is finished by the block that arrives last, which selects from
// all chunks' selections in the same way. Blocks past the row's count have nothing to do and leave.
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
#include "common/topk_cluster.cuh"
#include "common/topk_keys.cuh"

namespace ingot::kernels {

constexpr int LIST = INDEXER_TOPK_LISTED * THREADS;
// Groups of scores whose maxima bound the selection: about twice as many as are selected, so that
// the bound keeps few.
constexpr int WANTED_GROUPS = (2 * TOPK + THREADS - 1) / THREADS;
constexpr int GROUPS = WANTED_GROUPS >= VECTORS ? VECTORS
                       : WANTED_GROUPS > 2      ? VECTORS / 2
                       : WANTED_GROUPS > 1      ? 2
                                                : 1;
constexpr int GROUP_ITEMS = ITEMS / GROUPS;
static_assert(ITEMS % GROUPS == 0, "groups are of one size");
static_assert(VECTORS <= 8, "a thread owns at most one word of the bitmaps");
static_assert(CLUSTER > 1 || (TOPK % 4 == 0 && TOPK <= CHUNK && TOPK <= THREADS * GROUPS),
              "the maxima of the groups bound the selection");

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

// What the threshold is looked for in: the list, or, where that overflowed, everything again.
template <class Reload>
struct Source {
  SharedStorage& shared;
  Reload reload;
  bool listed;
  int count;

  __forceinline__ u32 key(int i) const { return listed ? shared.listed_keys[i] : reload(i); }
  __forceinline__ u32 place(int i) const { return listed ? shared.listed_places[i] : i; }
};

// Keys below `lowest` do not count, none is above `highest`, and the TOPK-th largest lies between.
template <class Source>
__forceinline__ Threshold find_threshold(SharedStorage& shared, const Source& source, u32 lowest,
                                         u32 highest) {
  u32 wanted = TOPK, last = highest - lowest;
  int shift = bits_above_bins(last);
  while (true) {
#pragma unroll 1
    for (int i = threadIdx.x; i < source.count; i += THREADS) {
      const u32 distance = source.key(i) - lowest;  // of a smaller key: beyond all
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

// Calls emit(rank, place, key) for each key that is selected; ranks are by place.
template <class Source, class Emit>
__forceinline__ void emit_selected(SharedStorage& shared, const Source& source, Threshold threshold,
                                   Emit emit) {
#pragma unroll 1
  for (int i = threadIdx.x; i < source.count; i += THREADS) {
    const u32 key = source.key(i), place = source.place(i), bit = 1u << (place % 32);
    if (key > threshold.key)
      atomicOr(&shared.above[place / 32], bit);
    else if (threshold.equal > 0 && key == threshold.key)
      atomicOr(&shared.equal[place / 32], bit);
  }
  __syncthreads();
  const bool has_word = threadIdx.x < CHUNK / 32;
  const u32 word = has_word ? threadIdx.x : 0;
  const u32 mine = __popc(shared.above[word]) | (__popc(shared.equal[word]) << 16);
  const u32 before = sum_before(shared, has_word ? mine : 0);
  if (has_word) shared.before[word] = before;
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < source.count; i += THREADS) {
    const u32 key = source.key(i), place = source.place(i), lower = (1u << (place % 32)) - 1;
    if (key < threshold.key || (threshold.equal == 0 && key == threshold.key)) continue;
    const u32 sums = shared.before[place / 32];
    const u32 above = (sums & 0xffffu) + __popc(shared.above[place / 32] & lower);
    const u32 equal = (sums >> 16) + __popc(shared.equal[place / 32] & lower);
    if (key > threshold.key)
      emit(above + min(equal, threshold.equal), place, key);
    else if (equal < threshold.equal)
      emit(above + equal, place, key);
  }
}

// Selects from this block's keys, more than TOPK of which are present. Places of thread t: 4 *
// (THREADS * v + t) and the three after it.
// @param reload  gives the key of a place, from memory
// @param places  that have keys, or gaps between them
template <class Reload, class Emit>
__forceinline__ void select(SharedStorage& shared, const u32 (&keys)[ITEMS], int places,
                            Reload reload, Emit emit) {
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
  const int listed = static_cast<int>(shared.listed);
  const Source<Reload> source{shared, reload, listed <= LIST, listed <= LIST ? listed : places};
  emit_selected(shared, source, find_threshold(shared, source, bound, largest), emit);
}

// One block's part of a row.
__forceinline__ void select_chunk(const IndexerTopkArgs& args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int row = blockIdx.y, chunk = blockIdx.x;
  const int count = args.counts[row];
  const int chunks = indexer_topk_chunks(count, CHUNK);
  if (chunk >= chunks) return;
  // Addresses are made where they are needed: registers are for keys.
  const auto indices = [&] { return args.indices + static_cast<i64>(row) * TOPK; };
  const auto scores = [&] {
    return args.scores + row * args.score_stride + static_cast<i64>(chunk) * CHUNK;
  };
  const auto row_candidates = [&] { return static_cast<i64>(row) * gridDim.x * TOPK; };
  const int sequence = MAP_PAGES ? args.sequences[row] : 0;
  if (chunk == 0 && threadIdx.x == 0) args.selected_counts[row] = min(count, TOPK);
  if (count <= TOPK) {
    for (int i = threadIdx.x; i < TOPK; i += THREADS)
      indices()[i] = i < count ? place_in_pool(args, sequence, i) : -1;
    return;
  }

  const int here = min(count - chunk * CHUNK, CHUNK);
  const uint4* const from = reinterpret_cast<const uint4*>(scores());
  u32 keys[ITEMS], nans = 0;  // first the bits of the scores: two copies do not fit the registers
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int vector = THREADS * v + threadIdx.x;
    uint4 four = make_uint4(0, 0, 0, 0);
    if (4 * vector < here) four = from[vector];
    keys[4 * v] = four.x;
    keys[4 * v + 1] = four.y;
    keys[4 * v + 2] = four.z;
    keys[4 * v + 3] = four.w;
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const float score = __uint_as_float(keys[i]);
    const bool present = 4 * (THREADS * (i / 4) + static_cast<int>(threadIdx.x)) + i % 4 < here;
    keys[i] = present ? key_of(score) : ABSENT;
    nans += present && score != score ? 1 : 0;
  }
  nans = __reduce_add_sync(0xffffffffu, nans);
  if (nans > 0 && threadIdx.x % 32 == 0) atomicAdd(&args.nan_counts[row], nans);

  // Once, or once for the chunk and, in the block that arrives last, once for the row.
  const bool whole = chunks == 1;
  bool joining = false;
#pragma unroll 1
  while (true) {
    const auto emit = [&](u32 rank, u32 place, u32 key) {
      int entry = chunk * CHUNK + static_cast<int>(place);
      if (joining)
        entry = static_cast<int>(
            ptx::load_relaxed_word(args.candidate_indices + row_candidates() + place));
      if (whole || joining) {
        indices()[rank] = place_in_pool(args, sequence, entry);
      } else {
        const i64 to = row_candidates() + chunk * TOPK + rank;
        args.candidate_keys[to] = key;
        args.candidate_indices[to] = entry;
      }
    };
    const auto reload = [&](int place) {
      return joining ? ptx::load_relaxed_word(args.candidate_keys + row_candidates() + place)
                     : key_of(scores()[place]);
    };
    if (joining || here > TOPK) {
      select(shared, keys, joining ? chunks * TOPK : here, reload, emit);
    } else {
      for (int place = threadIdx.x; place < TOPK; place += THREADS)
        emit(place, place, place < here ? reload(place) : ABSENT);
    }
    if (whole || joining) return;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      shared.last = atomicAdd(&args.arrived[row], 1u) == static_cast<u32>(chunks - 1) ? 1 : 0;
    __syncthreads();
    if (shared.last == 0) return;
    __threadfence();
    if (threadIdx.x == 0) args.arrived[row] = 0;
    joining = true;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int place = 4 * (THREADS * v + static_cast<int>(threadIdx.x));
      uint4 four = make_uint4(ABSENT, ABSENT, ABSENT, ABSENT);
      if (place < chunks * TOPK)
        four = ptx::load_relaxed(args.candidate_keys + row_candidates() + place);
      keys[4 * v] = four.x;
      keys[4 * v + 1] = four.y;
      keys[4 * v + 2] = four.z;
      keys[4 * v + 3] = four.w;
    }
  }
}

// Few keys leave room for as many threads of other rows as the registers hold.
constexpr int RESIDENT = CLUSTER > 1 && VECTORS <= 2 ? 1024 / THREADS : 1;
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    indexer_topk(const __grid_constant__ IndexerTopkArgs args) {
  release_successor();
  if constexpr (CLUSTER > 1) {
    topk_cluster::select(args);
  } else {
    wait_for_predecessor();
    select_chunk(args);
  }
}

}  // namespace ingot::kernels
