// Scores of the lightning indexer: score(key) = sum over heads of weight * relu(q_head . key), for
// FP4 keys in a paged pool, on the tensor cores in f16, to which e2m1 converts exactly.
// Source: model specification section 3.10.
// Launch contract (host twin: launch_shape in indexer_scores.space.hpp)
//   grid (any; RESIDENT per multiprocessor)   block (32 * WARPS)   cluster none
//   smem indexer_scores_smem_bytes(...), dynamic   arch sm_80 and later
//   programmatic dependent launch: yes
//
// A warp holds its keys (common/index_tiles.cuh) as the A operand in registers. That a lane has all
// of a group deals the dimensions to the steps of the mma in another order than they have; queries,
// the B operand, are widened by the same function and dealt alike. Heads are the columns: a lane
// adds up its own columns' weighted scores, and only the sum crosses lanes.
//
// Group scales enter the f16 values relative to the largest of a key (of a head's query), which
// multiplies the sum (the weight): relu commutes with positive factors. NaN in a key, query or
// weight makes the scores that it enters NaN. The order of a sum is fixed.
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/index_keys.cuh"
#include "common/index_tiles.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "indexer_scores.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "indexer_scores.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(HEADS % 8 == 0, "heads fill the columns of the mma");

constexpr int THREADS = 32 * WARPS, HEAD_TILES = HEADS / 8;
// Products in flight: several key tiles are enough, and leave no registers for more.
constexpr int HEAD_TILES_AHEAD = KEY_TILES == 1 ? 2 : 1;
using Tiles = IndexTiles<ROWS, WARPS, 16 * KEY_TILES, PAGE_ENTRIES, PAGE_BYTES>;
constexpr int TILE = Tiles::KEYS, LANE_KEYS = Tiles::LANE_KEYS;

struct SharedStorage {
  uint4 q[ROWS][HEAD_TILES][4][32];  // by lane: four f16 pairs of eight dimensions
  float weights[ROWS][HEADS];        // halved, times the unit of the head's query
  int counts[ROWS];
  Tiles::Schedule schedule;
};
static_assert(sizeof(SharedStorage) == indexer_scores_smem_bytes(HEADS, ROWS));

// A group's queries and weights to shared memory; the block's threads have passed a barrier since
// their last use, and pass one before the next.
__forceinline__ void load_queries(SharedStorage& shared, const IndexerScoresArgs& args, int group) {
  for (int i = threadIdx.x; i < ROWS * HEADS * 4; i += THREADS) {
    const int r = i / (HEADS * 4), head = i / 4 % HEADS, c = i % 4;
    const StoredQuery q = StoredQuery::load(args, group * ROWS + r, HEADS, head, c);
    const u32 unit = index_keys::unit_of(q.scales);
    const u32 scale = index_keys::relative_scale(q.scales, c, unit);
    const u32 words[4] = {q.codes.x, q.codes.y, q.codes.z, q.codes.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      u32 pairs[4];
      index_keys::widen(words[j], scale, pairs);
      shared.q[r][head / 8][j][head % 8 * 4 + c] =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    if (c == 0) shared.weights[r][head] = 0.5f * q.weight * index_keys::unit_value(unit);
  }
  if (threadIdx.x < ROWS)
    shared.counts[threadIdx.x] = Tiles::keys_of_row(args, group * ROWS + threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    indexer_scores(const __grid_constant__ IndexerScoresArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, c = lane % 4;
  release_successor();
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
    u32 a[KEY_TILES][2][16];
    float units[LANE_KEYS];
#pragma unroll
    for (int i = 0; i < LANE_KEYS; ++i) {
      const u32 unit = index_keys::unit_of(stored.scales[i]);
      const u32 scale = index_keys::relative_scale(stored.scales[i], c, unit);
      units[i] = index_keys::unit_value(unit);
      const u32 words[4] = {stored.codes[i].x, stored.codes[i].y, stored.codes[i].z,
                            stored.codes[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        u32 pairs[4];
        index_keys::widen(words[j], scale, pairs);
#pragma unroll
        for (int n = 0; n < 4; ++n)
          a[i / 2][i % 2][4 * j + n] = pairs[n];
      }
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
      float sums[LANE_KEYS] = {};
#pragma unroll HEAD_TILES_AHEAD
      for (int n = 0; n < HEAD_TILES; ++n) {
        float d[KEY_TILES][4] = {};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint4 b = shared.q[r][n][j][lane];
#pragma unroll
          for (int t = 0; t < KEY_TILES; ++t) {
            mma::f16(d[t], a[t][0][4 * j], a[t][1][4 * j], a[t][0][4 * j + 1], a[t][1][4 * j + 1],
                     b.x, b.y);
            mma::f16(d[t], a[t][0][4 * j + 2], a[t][1][4 * j + 2], a[t][0][4 * j + 3],
                     a[t][1][4 * j + 3], b.z, b.w);
          }
        }
        const float2 weight = *reinterpret_cast<const float2*>(&shared.weights[r][8 * n + 2 * c]);
#pragma unroll
        for (int i = 0; i < LANE_KEYS; ++i) {
          // x + |x| is twice the relu, and keeps NaN.
          const float first = d[i / 2][i % 2 * 2], second = d[i / 2][i % 2 * 2 + 1];
          sums[i] = fmaf(weight.x, first + fabsf(first), sums[i]);
          sums[i] = fmaf(weight.y, second + fabsf(second), sums[i]);
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
