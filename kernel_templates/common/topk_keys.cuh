#pragma once
// What the ways to select the highest scores have in common: scores as integers, and the bin of a
// histogram that a rank falls in. The family's parameters are in scope.
#include "common/types.cuh"
#include "indexer_topk.args.h"

namespace ingot::kernels {

// A thread's scores, and a block's.
constexpr int ITEMS = 4 * VECTORS, CHUNK = indexer_topk_chunk(THREADS, VECTORS);
constexpr int BINS = INDEXER_TOPK_BINS, BIN_BITS = 11;
static_assert(BINS == 1 << BIN_BITS && BINS % THREADS == 0, "a thread owns whole bins");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "one warp holds the sums of all warps");

// Scores as unsigned integers of the same order. An absent score is below all.
constexpr u32 ABSENT = 0, LOWEST = 0x007fffffu;  // LOWEST: -inf

__forceinline__ u32 key_of(float score) {
  if (score != score) return LOWEST;
  const int bits = __float_as_int(score + 0.0f);  // -0 and 0 are equal
  return static_cast<u32>(bits) ^ (static_cast<u32>(bits >> 31) | 0x80000000u);
}

__forceinline__ int bits_above_bins(u32 range) {
  return max(32 - __clz(static_cast<int>(range)) - BIN_BITS, 0);
}

__forceinline__ int place_in_pool(const IndexerTopkArgs& args, int sequence, int entry) {
  if (!MAP_PAGES) return entry;
  const int* const pages = args.page_table + static_cast<i64>(sequence) * args.page_stride;
  return pages[entry / PAGE_ENTRIES] * PAGE_ENTRIES + entry % PAGE_ENTRIES;
}

// The selection: keys above `key`, and the first `equal` of those that are equal to it.
struct Threshold {
  u32 key, equal;
};

// Sum of `value` over the threads before this one; all threads of the block call it.
template <class Storage>
__forceinline__ u32 sum_before(Storage& shared, u32 value) {
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

struct Cut {
  u32 bin, above, inside;  // keys in higher bins, and in this one; none: fewer than wanted
};

// The bin of the `wanted`-th largest of the counted keys. Empties the bins. Begins and ends with a
// barrier.
template <class Storage>
__forceinline__ Cut find_bin(Storage& shared, u32 wanted) {
  constexpr int OWN = BINS / THREADS;
  __syncthreads();
  u32* const mine = shared.bins + BINS - OWN * (threadIdx.x + 1);
  u32 counts[OWN], total = 0;
  if constexpr (OWN % 4 == 0) {
#pragma unroll
    for (int i = 0; i < OWN; i += 4) {
      uint4* const four = reinterpret_cast<uint4*>(mine + i);
      counts[i] = four->x;
      counts[i + 1] = four->y;
      counts[i + 2] = four->z;
      counts[i + 3] = four->w;
      *four = make_uint4(0, 0, 0, 0);
    }
  } else {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      counts[i] = mine[i];
      mine[i] = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < OWN; ++i)
    total += counts[i];
  u32 above = sum_before(shared, total);
  if (threadIdx.x == THREADS - 1 && above + total < wanted) shared.cut = {0, above + total, 0};
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

}  // namespace ingot::kernels
