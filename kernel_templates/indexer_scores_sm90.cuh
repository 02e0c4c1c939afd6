// Scores of the lightning indexer as in indexer_scores.cuh, on Hopper's wgmma in e4m3, at twice the
// rate of f16: with 68 bytes a key, f16 products take longer than the keys' way from HBM.
// Launch contract (host twin: launch_shape in indexer_scores_sm90.space.hpp)
//   grid (any; RESIDENT per multiprocessor)   block (128 * WARPGROUPS + 32)   cluster none
//   smem indexer_scores_sm90_smem_bytes(...), dynamic   arch sm_90a
//   programmatic dependent launch: yes
//
// A warpgroup multiplies 64 or 128 keys at a time: keys are the A operand in registers, queries the
// B operand in shared memory. The last warp copies keys ahead, a page or a part of one at a time,
// into a ring of each warpgroup: from registers, where a warpgroup's next keys would wait for it,
// too few are on their way to keep HBM busy. Lane 4g + c of a warp holds group c of its keys, so
// step j of four multiplies dimensions 8j .. 8j + 7 of all four groups: in k order, the first four
// of each group, then the last four.
//
// Codes become e4m3 by a byte permutation: the row of a table that the group's scale relative to
// the entry's largest chooses is indexed by the codes. Exact for groups down to 2^-14 of the
// largest (common/index_keys.cuh). The tensor cores keep about 14 bits of a sum of products. What
// relu leaves of it is rounded to bf16, as in the official code, so that tensor cores can weigh and
// add the heads, too: fp32 multiply-adds take longer than the keys' way from HBM. Sums are fp32,
// weights times the units of their queries are exact in bf16, and the order is fixed. NaN in a key,
// query or weight makes the scores that it enters NaN.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/index_keys.cuh"
#include "common/index_tiles.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/ring.cuh"
#include "common/wgmma_e4m3.cuh"
#include "indexer_scores_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "indexer_scores_sm90.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(HEADS == 8 || HEADS == 16 || HEADS == 32 || HEADS == 64, "the N of the mma");
static_assert(PAGE_ENTRIES % INDEX_COPY_KEYS == 0, "keys that are copied together lie in one page");

constexpr int MATH_THREADS = 128 * WARPGROUPS, THREADS = MATH_THREADS + 32, HEAD_TILES = HEADS / 8;
constexpr int WARP_KEYS = 16 * KEY_TILES;
using Tiles = IndexTiles<ROWS, 4 * WARPGROUPS, WARP_KEYS, PAGE_ENTRIES, PAGE_BYTES>;
constexpr int TILE = Tiles::KEYS;
// Copies of a tile; a lane of the last warp makes the same one of each tile that it takes.
constexpr int COPIES = WARPGROUPS * KEY_TILES, LANE_TILES = 32 / COPIES;
static_assert(COPIES <= 32, "a lane makes one copy of a tile");

// Queries without swizzle: blocks of 8 heads x 16 bytes of k, all heads of 16 k, then the next 16.
constexpr int STEPS = 4, K_STRIDE = HEADS * 16;
constexpr int WEIGHT_PAIRS = HEADS < 32 ? 4 : HEADS / 8;

struct alignas(128) Keys {  // what a copy brings
  u8 codes[INDEX_COPY_KEYS][INDEX_CODE_BYTES];
  u8 scales[INDEX_COPY_KEYS][INDEX_SCALE_BYTES];
};
// A lane's weights as the B operand that weighs the heads: bf16 pairs, heads 8n + 2c and the next.
struct alignas(16) HeadWeights {
  u32 pairs[WEIGHT_PAIRS];
};
struct alignas(128) SharedStorage {
  Keys keys[STAGES][WARPGROUPS][KEY_TILES];
  u32 q[ROWS][2 * STEPS][HEADS][4];  // by 16 k, head, and group: four e4m3
  index_keys::E4m3Table magnitudes;
  u64 full[STAGES][WARPGROUPS], empty[STAGES][WARPGROUPS];
  HeadWeights weights[ROWS][4];  // by lane of a quad
  int counts[ROWS];
  Tiles::Schedule schedule;
};
static_assert(sizeof(SharedStorage) ==
              indexer_scores_sm90_smem_bytes(HEADS, ROWS, WARPGROUPS, KEY_TILES, STAGES));

using Ring = RingPlace<STAGES>;

// The last warp: copies the keys of the block's `tiles` tiles as stages become free.
__forceinline__ void bring_keys(SharedStorage& shared, const IndexerScoresArgs& args, int tiles,
                                int lane) {
  const int copy = lane % COPIES, group = copy / KEY_TILES, part = copy % KEY_TILES;
  Tiles::Cursor at;
  at.enter(args, shared.schedule.group, shared.schedule.tile);
  // The tile, of the block's; lanes beyond the last whole tile's have none.
  int mine = lane / COPIES < LANE_TILES ? lane / COPIES : tiles;
  const auto page_of_mine = [&] {
    const int key = at.first + copy * INDEX_COPY_KEYS;
    return mine < tiles && key < at.keys ? ptx::load_int(at.pages + key / PAGE_ENTRIES) : -1;
  };
  if (mine > 0 && mine < tiles) at.skip(args, mine);
  int page = page_of_mine();
  Ring ring;
  bool first_round = true;
#pragma unroll 1
  for (int done = 0; done < tiles; done += LANE_TILES) {
    const int this_page = page;
    const int place = (at.first + copy * INDEX_COPY_KEYS) % PAGE_ENTRIES;
    mine += LANE_TILES;
    if (mine < tiles) at.skip(args, LANE_TILES);
    page = page_of_mine();
#pragma unroll 1
    for (int i = 0; i < min(LANE_TILES, tiles - done); ++i) {
      if (lane / COPIES == i) {
        const u32 full = ptx::shared_address(&shared.full[ring.stage][group]);
        if (!first_round)
          barrier::wait(ptx::shared_address(&shared.empty[ring.stage][group]), ring.parity ^ 1);
        if (this_page < 0) {
          barrier::arrive(full);
        } else {
          Keys& to = shared.keys[ring.stage][group][part];
          const u8* const from = args.pool + static_cast<i64>(this_page) * PAGE_BYTES;
          barrier::arrive_expect(full, sizeof(Keys));
          if constexpr (PAGE_ENTRIES == INDEX_COPY_KEYS) {
            barrier::copy_bulk(ptx::shared_address(&to), from, sizeof(Keys), full);
          } else {
            barrier::copy_bulk(ptx::shared_address(&to), from + place * INDEX_CODE_BYTES,
                               sizeof(to.codes), full);
            barrier::copy_bulk(ptx::shared_address(&to.scales),
                               from + PAGE_ENTRIES * INDEX_CODE_BYTES + place * INDEX_SCALE_BYTES,
                               sizeof(to.scales), full);
          }
        }
      }
      __syncwarp();
      ring.advance();
      if (ring.stage == 0) first_round = false;
    }
  }
}

// A group's queries and weights to shared memory; the math threads have passed a barrier since
// their last use, and pass one before the next.
__forceinline__ void load_queries(SharedStorage& shared, const IndexerScoresArgs& args, int group) {
  for (int i = threadIdx.x; i < ROWS * HEADS * 4; i += MATH_THREADS) {
    const int r = i / (HEADS * 4), head = i / 4 % HEADS, c = i % 4;
    const StoredQuery q = StoredQuery::load(args, group * ROWS + r, HEADS, head, c);
    const u32 unit = index_keys::unit_of(q.scales);
    const uint2 magnitudes = index_keys::magnitudes(shared.magnitudes, q.scales, c, unit);
    const u32 words[STEPS] = {q.codes.x, q.codes.y, q.codes.z, q.codes.w};
#pragma unroll
    for (int j = 0; j < STEPS; ++j)
      index_keys::to_e4m3(words[j], magnitudes, shared.q[r][2 * j][head][c],
                          shared.q[r][2 * j + 1][head][c]);
    constexpr float ONE = 1.0f / (1 << 2 * index_keys::E4M3_SHIFT);
    if (c == 0)
      reinterpret_cast<bf16*>(shared.weights[r][head % 8 / 2].pairs)[head / 8 * 2 + head % 2] =
          to_bf16(ONE * q.weight * index_keys::unit_value(unit));
  }
  if (threadIdx.x < ROWS)
    shared.counts[threadIdx.x] = Tiles::keys_of_row(args, group * ROWS + threadIdx.x);
  barrier::publish_to_async_proxy();
}

// relu, weights and the sum over heads of 64 keys: the products' fragments are, rounded, the A
// operand, and all columns of B are the weights. So each lane has the scores of its rows g and
// g + 8, in the first and in the third.
__forceinline__ void weigh(float (&scores)[4], const float (&d)[HEADS / 2],
                           const HeadWeights& weights) {
  const auto relu = [&](int at) { return at < HEADS / 2 ? pack_bf16_relu(d[at], d[at + 1]) : 0u; };
#pragma unroll
  for (int k = 0; k < (HEADS + 15) / 16; ++k)
    mma::bf16(scores, relu(8 * k), relu(8 * k + 2), relu(8 * k + 4), relu(8 * k + 6),
              weights.pairs[2 * k], HEADS < 16 ? 0u : weights.pairs[2 * k + 1]);
}

// The warps that multiply.
__forceinline__ void score_keys(SharedStorage& shared, const IndexerScoresArgs& args, int tiles) {
  const int lane = threadIdx.x % 32, c = lane % 4, group = threadIdx.x / 128;
  const int first_key = static_cast<int>(threadIdx.x) % 128 / 32 * WARP_KEYS + lane / 4;
  Tiles::Cursor at;
  at.enter(args, shared.schedule.group, shared.schedule.tile);
  float* row_scores;    // of the group's first row
  HeadWeights weights;  // its, too
  int count;
  const auto take_queries = [&] {
    load_queries(shared, args, at.group);
    ptx::sync_threads(1, MATH_THREADS);
    row_scores = args.scores + static_cast<i64>(at.group) * ROWS * args.score_stride;
    weights = shared.weights[0][c];
    count = shared.counts[0];
  };
  take_queries();
  Ring ring;
#pragma unroll 1
  for (; tiles > 0; --tiles) {
    const Keys& keys = shared.keys[ring.stage][group][first_key / INDEX_COPY_KEYS];
    const int place = first_key % INDEX_COPY_KEYS;
    barrier::wait(ptx::shared_address(&shared.full[ring.stage][group]), ring.parity);
#pragma unroll
    for (int t = 0; t < KEY_TILES; ++t) {
      u32 a[STEPS][4], units[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = place + 16 * t + 8 * half;
        const uint4 codes = *reinterpret_cast<const uint4*>(&keys.codes[key][16 * c]);
        const u32 scales = *reinterpret_cast<const u32*>(keys.scales[key]);
        units[half] = index_keys::unit_of(scales);
        const uint2 magnitudes = index_keys::magnitudes(shared.magnitudes, scales, c, units[half]);
        const u32 words[STEPS] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int j = 0; j < STEPS; ++j)
          index_keys::to_e4m3(words[j], magnitudes, a[j][half], a[j][2 + half]);
      }
      if (t == KEY_TILES - 1)
        barrier::arrive_warp(ptx::shared_address(&shared.empty[ring.stage][group]), lane);
      // Lanes 0 and 1 of a quad store a key each.
      const float unit = index_keys::unit_value(c == 0 ? units[0] : units[1]);
      const int my_key = at.first + group * (64 * KEY_TILES) + first_key + 16 * t + 8 * c;
#pragma unroll 1
      for (int r = 0; r < ROWS; ++r) {
        float d[HEADS / 2];
        const u64 q = wgmma_f16::descriptor(ptx::shared_address(shared.q[r]), K_STRIDE);
        wgmma_f16::fence();
#pragma unroll
        for (int j = 0; j < STEPS; ++j)
          wgmma_e4m3::multiply<HEADS>(d, a[j], wgmma_f16::advance(q, 2 * j * K_STRIDE), j);
        wgmma_f16::commit();
        wgmma_f16::wait<0>();
        wgmma_f16::hold(d);
        if (ROWS > 1) weights = shared.weights[r][c], count = shared.counts[r];
        float scores[4] = {};
        weigh(scores, d, weights);
        if (c < 2 && my_key < count)
          row_scores[r * args.score_stride + my_key] = (c == 0 ? scores[0] : scores[2]) * unit;
      }
    }
    ring.advance();
    if (tiles == 1) break;
    const int before = at.group;
    at.advance(args);
    if (at.group != before) {
      ptx::sync_threads(1, MATH_THREADS);  // nobody multiplies by the queries before
      take_queries();
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    indexer_scores_sm90(const __grid_constant__ IndexerScoresArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  release_successor();
  if (threadIdx.x < 32) index_keys::fill(shared.magnitudes, threadIdx.x);
  // Of the first lane, so that the compiler sees that it is the same in all: then descriptors live
  // in uniform registers, which the mma takes.
  const bool copies = __shfl_sync(0xffffffffu, threadIdx.x, 0) >= MATH_THREADS;
  if (copies) {
    for (int i = threadIdx.x - MATH_THREADS; i < STAGES * WARPGROUPS; i += 32) {
      barrier::init(ptx::shared_address(&shared.full[0][0] + i), KEY_TILES);
      barrier::init(ptx::shared_address(&shared.empty[0][0] + i), 4 * barrier::WARP_ARRIVALS);
    }
    barrier::publish_init();
  }
  wait_for_predecessor();
  const int tiles = Tiles::find_run(shared.schedule, args);  // ends with a barrier
  if (tiles == 0) return;
  if (copies)
    bring_keys(shared, args, tiles, threadIdx.x % 32);
  else
    score_keys(shared, args, tiles);
}

}  // namespace ingot::kernels
