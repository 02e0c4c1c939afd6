// Scores of the lightning indexer as in indexer_scores.cuh, on Hopper's wgmma in e4m3, at twice the
// rate of f16: with 68 bytes a key, f16 products take longer than the keys' way from HBM.
// Launch contract (host twin: launch_shape in indexer_scores_sm90.space.hpp)
//   grid (any; RESIDENT per multiprocessor)   block (128 * WARPGROUPS)   cluster none
//   smem indexer_scores_sm90_smem_bytes(...), dynamic   arch sm_90a
//   programmatic dependent launch: yes
//
// A warpgroup holds 64 or 128 keys (common/index_tiles.cuh) as the A operand in registers; queries
// are the B operand in shared memory. Lane 4g + c of a warp holds group c of its keys, so step j of
// four multiplies dimensions 8j .. 8j + 7 of all four groups: in k order, the first four of each
// group, then the last four.
//
// Codes become e4m3 by a byte permutation: the row of a table that the group's scale relative to
// the entry's largest chooses is indexed by the codes. Exact for groups down to 2^-14 of the
// largest (common/index_keys.cuh). The tensor cores keep about 14 bits of a sum of products; the
// official code rounds it to 8. NaN in a key, query or weight makes the scores that it enters NaN.
// The order of a sum is fixed.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/index_keys.cuh"
#include "common/index_tiles.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/wgmma_e4m3.cuh"
#include "indexer_scores_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "indexer_scores_sm90.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(HEADS == 8 || HEADS == 16 || HEADS == 32 || HEADS == 64, "the N of the mma");

constexpr int THREADS = 128 * WARPGROUPS, HEAD_TILES = HEADS / 8;
using Tiles = IndexTiles<ROWS, 4 * WARPGROUPS, 16 * KEY_TILES, PAGE_ENTRIES, PAGE_BYTES>;
constexpr int TILE = Tiles::KEYS, LANE_KEYS = Tiles::LANE_KEYS;

// Queries without swizzle: blocks of 8 heads x 16 bytes of k, all heads of 16 k, then the next 16.
constexpr int STEPS = 4, K_STRIDE = HEADS * 16;

struct alignas(128) SharedStorage {
  u32 q[ROWS][2 * STEPS][HEADS][4];  // by 16 k, head, and group: four e4m3
  index_keys::E4m3Table magnitudes;
  float weights[ROWS][HEADS];  // halved, times the unit of the head's query and what e4m3 adds
  int counts[ROWS];
  Tiles::Schedule schedule;
};
static_assert(sizeof(SharedStorage) == indexer_scores_sm90_smem_bytes(HEADS, ROWS));

// A group's queries and weights to shared memory; the block's threads have passed a barrier since
// their last use, and pass one before the next.
__forceinline__ void load_queries(SharedStorage& shared, const IndexerScoresArgs& args, int group) {
  for (int i = threadIdx.x; i < ROWS * HEADS * 4; i += THREADS) {
    const int r = i / (HEADS * 4), head = i / 4 % HEADS, c = i % 4;
    const StoredQuery q = StoredQuery::load(args, group * ROWS + r, HEADS, head, c);
    const u32 unit = index_keys::unit_of(q.scales);
    const uint2 magnitudes = index_keys::magnitudes(shared.magnitudes, q.scales, c, unit);
    const u32 words[STEPS] = {q.codes.x, q.codes.y, q.codes.z, q.codes.w};
#pragma unroll
    for (int j = 0; j < STEPS; ++j)
      index_keys::to_e4m3(words[j], magnitudes, shared.q[r][2 * j][head][c],
                          shared.q[r][2 * j + 1][head][c]);
    constexpr float HALF = 0.5f / (1 << 2 * index_keys::E4M3_SHIFT);
    if (c == 0) shared.weights[r][head] = HALF * q.weight * index_keys::unit_value(unit);
  }
  if (threadIdx.x < ROWS)
    shared.counts[threadIdx.x] = Tiles::keys_of_row(args, group * ROWS + threadIdx.x);
  barrier::publish_to_async_proxy();
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    indexer_scores_sm90(const __grid_constant__ IndexerScoresArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int c = threadIdx.x % 4;
  release_successor();
  if (threadIdx.x < 32) index_keys::fill(shared.magnitudes, threadIdx.x);
  wait_for_predecessor();
  int tiles = Tiles::find_run(shared.schedule, args);
  if (tiles == 0) return;

  Tiles::Cursor now, next;
  now.enter(args, shared.schedule.group, shared.schedule.tile);
  int pages[Tiles::PAGES];
  Tiles::Stored stored;
  Tiles::load_pages(now, pages);
  load_queries(shared, args, now.group);
  stored.load(args, now, pages);
  next = now;
  if (tiles > 1) {
    next.advance(args);
    Tiles::load_pages(next, pages);
  }
  __syncthreads();

#pragma unroll 1
  for (; tiles > 0; --tiles) {
    u32 a[KEY_TILES][STEPS][4];
    float units[LANE_KEYS];
#pragma unroll
    for (int i = 0; i < LANE_KEYS; ++i) {
      const u32 unit = index_keys::unit_of(stored.scales[i]);
      const uint2 magnitudes = index_keys::magnitudes(shared.magnitudes, stored.scales[i], c, unit);
      units[i] = index_keys::unit_value(unit);
      const u32 words[STEPS] = {stored.codes[i].x, stored.codes[i].y, stored.codes[i].z,
                                stored.codes[i].w};
#pragma unroll
      for (int j = 0; j < STEPS; ++j)
        index_keys::to_e4m3(words[j], magnitudes, a[i / 2][j][i % 2], a[i / 2][j][2 + i % 2]);
    }
    // The next tile's keys travel while this one is multiplied, and the pages of the one after.
    const Tiles::Cursor at = now;
    if (tiles > 1) {
      stored.load(args, next, pages);
      now = next;
      if (tiles > 2) {
        next.advance(args);
        Tiles::load_pages(next, pages);
      }
    }

#pragma unroll 1
    for (int r = 0; r < ROWS; ++r) {
      float d[KEY_TILES][HEADS / 2];
      const u64 q = wgmma_f16::descriptor(ptx::shared_address(shared.q[r]), K_STRIDE);
      wgmma_f16::fence();
#pragma unroll
      for (int t = 0; t < KEY_TILES; ++t) {
#pragma unroll
        for (int j = 0; j < STEPS; ++j)
          wgmma_e4m3::multiply<HEADS>(d[t], a[t][j], wgmma_f16::advance(q, 2 * j * K_STRIDE), j);
        wgmma_f16::commit();
      }
      float sums[LANE_KEYS] = {};
#pragma unroll
      for (int t = 0; t < KEY_TILES; ++t) {
        if (t == 0)
          wgmma_f16::wait<KEY_TILES - 1>();
        else
          wgmma_f16::wait<0>();
        wgmma_f16::hold(d[t]);
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n) {
          const float2 weight = *reinterpret_cast<const float2*>(&shared.weights[r][8 * n + 2 * c]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            // x + |x| is twice the relu, and keeps NaN.
            const float first = d[t][4 * n + 2 * half], second = d[t][4 * n + 2 * half + 1];
            float& sum = sums[2 * t + half];
            sum = fmaf(weight.x, first + fabsf(first), sum);
            sum = fmaf(weight.y, second + fabsf(second), sum);
          }
        }
      }
      Tiles::store(args, at, r, shared.counts[r], sums, units);
    }
    if (now.group != at.group) {
      __syncthreads();
      load_queries(shared, args, now.group);
      __syncthreads();
    }
  }
}

}  // namespace ingot::kernels
