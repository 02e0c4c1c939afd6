// Scores of the lightning indexer: score(key) = sum over heads of weight * relu(q_head . key), for
// FP4 keys in a paged pool, on the tensor cores in f16, to which e2m1 converts exactly.
// Source: model specification section 3.10.
// Launch contract (host twin: launch_shape in indexer_scores.space.hpp)
//   grid (any; RESIDENT per multiprocessor)   block (32 * WARPS)   cluster none   arch sm_80 and
//   later smem indexer_scores_smem_bytes(...), dynamic   programmatic dependent launch: yes
//
// The tiles of all rows are dealt to the blocks in equal runs, so the time follows the keys that
// there are, however they are spread over rows. A warp holds 16 or more keys as the A operand in
// registers: lane 4g + c loads the 16 bytes of group c of keys g and g + 8, so that a warp reads
// whole entries and a lane has one group's scale. That deals the dimensions to the steps of the mma
// in another order than they have; queries, the B operand, are widened by the same function and
// dealt alike. Heads are the columns: a lane adds up its own columns' weighted scores, and only the
// sum crosses lanes.
//
// Group scales enter the f16 values relative to the largest of a key (of a head's query), which
// multiplies the sum (the weight): relu commutes with positive factors. NaN in a key, query or
// weight makes the scores that it enters NaN. The order of a sum is fixed.
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/index_keys.cuh"
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
static_assert(PAGE_BYTES % 16 == 0, "codes are read in 16-byte words");
static_assert(PAGE_BYTES >= PAGE_ENTRIES * (INDEX_CODE_BYTES + INDEX_SCALE_BYTES),
              "a page holds its entries and their scales");

constexpr int THREADS = 32 * WARPS, HEAD_TILES = HEADS / 8;
constexpr int WARP_KEYS = 16 * KEY_TILES, TILE = WARPS * WARP_KEYS;
constexpr int LANE_KEYS = 2 * KEY_TILES;  // keys g and g + 8 of each tile

struct SharedStorage {
  uint4 q[ROWS][HEAD_TILES][4][32];  // by lane: four f16 pairs of eight dimensions
  float weights[ROWS][HEADS];        // halved, times the unit of the head's query
  int counts[ROWS];
  int warp_sums[32];
  int group, tile;  // where the block's run begins
};
static_assert(sizeof(SharedStorage) == indexer_scores_smem_bytes(HEADS, ROWS));

__forceinline__ int scored_keys(const IndexerScoresArgs& args, int row) {
  const int count = row < args.rows ? args.counts[row] : 0;
  return count > args.all_taken ? count : 0;
}
// The longest row of a group of ROWS.
__forceinline__ int group_keys(const IndexerScoresArgs& args, int group) {
  int keys = 0;
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    keys = max(keys, scored_keys(args, group * ROWS + r));
  return keys;
}

// A tile of a group's keys.
struct Cursor {
  int group, first, keys;  // first key of the tile; keys of the group
  const int* pages;

  __forceinline__ void enter(const IndexerScoresArgs& args, int of_group, int tile) {
    group = of_group;
    first = tile * TILE;
    keys = group_keys(args, group);
    pages = args.page_table + static_cast<i64>(args.sequences[group * ROWS]) * args.page_stride;
  }
  __forceinline__ void advance(const IndexerScoresArgs& args) {
    first += TILE;
    if (first < keys) return;
    int next = group + 1;
    while (group_keys(args, next) == 0)
      ++next;
    enter(args, next, 0);
  }
};

// Where the block's run of tiles begins, and how many there are. The order of tiles: by group.
__forceinline__ int find_run(SharedStorage& shared, const IndexerScoresArgs& args) {
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int groups = (args.rows + ROWS - 1) / ROWS;
  const int share = (groups + THREADS - 1) / THREADS;  // neighbouring groups of a thread
  const int first = thread * share, last = min(first + share, groups);
  int mine = 0;
  for (int group = first; group < last; ++group)
    mine += (group_keys(args, group) + TILE - 1) / TILE;
  int sum = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();
  int before = sum - mine, total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w < warp) before += shared.warp_sums[w];
    total += shared.warp_sums[w];
  }
  const int begin = static_cast<int>(static_cast<i64>(total) * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(static_cast<i64>(total) * (blockIdx.x + 1) / gridDim.x);
  if (before <= begin && begin < before + mine) {
    int tile = begin - before;
    for (int group = first; group < last; ++group) {
      const int tiles = (group_keys(args, group) + TILE - 1) / TILE;
      if (tile >= 0 && tile < tiles) {
        shared.group = group;
        shared.tile = tile;
      }
      tile -= tiles;
    }
  }
  __syncthreads();
  return end - begin;
}

// A group's queries and weights to shared memory; the block's threads have passed a barrier since
// their last use, and pass one before the next.
__forceinline__ void load_queries(SharedStorage& shared, const IndexerScoresArgs& args, int group) {
  for (int i = threadIdx.x; i < ROWS * HEADS * 4; i += THREADS) {
    const int r = i / (HEADS * 4), row = group * ROWS + r, head = i / 4 % HEADS, c = i % 4;
    uint4 codes = make_uint4(0, 0, 0, 0);
    u32 scales = 0;
    float weight = 0.0f;
    if (row < args.rows) {
      const i64 at = static_cast<i64>(row) * HEADS + head;
      codes = *reinterpret_cast<const uint4*>(args.q + at * INDEX_CODE_BYTES + 16 * c);
      scales = *reinterpret_cast<const u32*>(args.q_scales + at * INDEX_SCALE_BYTES);
      weight = to_float(args.weights[at]);
    }
    const u32 unit = index_keys::unit_of(scales);
    const u32 scale = index_keys::relative_scale(scales, c, unit);
    const u32 words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      u32 pairs[4];
      index_keys::widen(words[j], scale, pairs);
      shared.q[r][head / 8][j][head % 8 * 4 + c] =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    if (c == 0) shared.weights[r][head] = 0.5f * weight * index_keys::unit_value(unit);
  }
  if (threadIdx.x < ROWS)
    shared.counts[threadIdx.x] = scored_keys(args, group * ROWS + threadIdx.x);
}

// What a lane has of its keys, as stored.
struct StoredKeys {
  uint4 codes[LANE_KEYS];
  u32 scales[LANE_KEYS];
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    indexer_scores(const __grid_constant__ IndexerScoresArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
  release_successor();
  wait_for_predecessor();
  int tiles = find_run(shared, args);
  if (tiles == 0) return;

  // Keys of a lane: key(i) for i = 2 * tile + half.
  const auto key = [&](const Cursor& at, int i) {
    return at.first + warp * WARP_KEYS + i / 2 * 16 + i % 2 * 8 + g;
  };
  const auto load_pages = [&](const Cursor& at, int(&pages)[LANE_KEYS]) {
#pragma unroll
    for (int i = 0; i < LANE_KEYS; ++i) {
      pages[i] = -1;
      if (key(at, i) < at.keys) pages[i] = ptx::load_int(at.pages + key(at, i) / PAGE_ENTRIES);
    }
  };
  const auto load_keys = [&](const Cursor& at, const int(&pages)[LANE_KEYS], StoredKeys& keys) {
#pragma unroll
    for (int i = 0; i < LANE_KEYS; ++i) {
      keys.codes[i] = make_uint4(0, 0, 0, 0);
      keys.scales[i] = 0;
      if (pages[i] < 0) continue;
      const u8* const page = args.pool + static_cast<i64>(pages[i]) * PAGE_BYTES;
      const int place = static_cast<int>(static_cast<u32>(key(at, i)) % PAGE_ENTRIES);
      keys.codes[i] = ptx::load_words(page + place * INDEX_CODE_BYTES + 16 * c);
      keys.scales[i] =
          ptx::load_word(page + PAGE_ENTRIES * INDEX_CODE_BYTES + place * INDEX_SCALE_BYTES);
    }
  };

  Cursor now, next;
  now.enter(args, shared.group, shared.tile);
  int pages[LANE_KEYS];
  StoredKeys stored;
  load_pages(now, pages);
  load_queries(shared, args, now.group);
  load_keys(now, pages, stored);
  next = now;
  if (tiles > 1) {
    next.advance(args);
    load_pages(next, pages);
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
    const Cursor at = now;
    if (tiles > 1) {
      load_keys(next, pages, stored);
      now = next;
      if (tiles > 2) {
        next.advance(args);
        load_pages(next, pages);
      }
    }

#pragma unroll 1
    for (int r = 0; r < ROWS; ++r) {
      float sums[LANE_KEYS] = {};
#pragma unroll 2
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
      float* const scores =
          args.scores + (static_cast<i64>(at.group) * ROWS + r) * args.score_stride;
#pragma unroll
      for (int i = 0; i < LANE_KEYS; ++i) {
        sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 1);
        sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 2);
        if (c == i % 2 && key(at, i) < shared.counts[r]) scores[key(at, i)] = sums[i] * units[i];
      }
    }
    if (now.group != at.group) {
      __syncthreads();
      load_queries(shared, args, now.group);
      __syncthreads();
    }
  }
}

}  // namespace ingot::kernels
