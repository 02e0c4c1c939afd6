#pragma once
// What the families that score index keys share: the deal of tiles to blocks, and a lane's keys on
// their way from the paged pool.
//
// A tile is KEYS keys of a group of ROWS query rows of one sequence. All tiles, in the order of the
// groups, are dealt to the blocks in equal runs, so the time follows the keys that there are,
// however they are spread over rows. Within a tile a warp has WARP_KEYS neighbouring keys, and lane
// 4g + c loads of keys 8i + g the 16 bytes of group c: a warp reads whole entries, and a lane has
// one group's scale.
#include "common/bf16.cuh"
#include "common/ptx.cuh"
#include "common/types.cuh"
#include "indexer_scores.args.h"

namespace ingot::kernels {

template <int ROWS, int WARPS, int WARP_KEYS, int PAGE_ENTRIES, int PAGE_BYTES>
struct IndexTiles {
  static constexpr int KEYS = WARPS * WARP_KEYS, LANE_KEYS = WARP_KEYS / 8;
  // Pages that a lane's keys of a tile may lie in.
  static constexpr int PAGES = PAGE_ENTRIES % WARP_KEYS == 0 ? 1 : LANE_KEYS;
  static_assert(WARP_KEYS % 8 == 0, "a lane's keys are eight apart");
  static_assert(PAGE_BYTES % 16 == 0, "codes are read in 16-byte words");
  static_assert(PAGE_BYTES >= PAGE_ENTRIES * (INDEX_CODE_BYTES + INDEX_SCALE_BYTES),
                "a page holds its entries and their scales");

  // Keys of a row that are scored.
  static __forceinline__ int keys_of_row(const IndexerScoresArgs& args, int row) {
    const int count = row < args.rows ? args.counts[row] : 0;
    return count > args.all_taken ? count : 0;
  }
  // The longest row of a group.
  static __forceinline__ int keys_of(const IndexerScoresArgs& args, int group) {
    int keys = 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      keys = max(keys, keys_of_row(args, group * ROWS + r));
    return keys;
  }

  // A tile of a group's keys.
  struct Cursor {
    int group, first, keys;  // first key of the tile; keys of the group
    const int* pages;

    __forceinline__ void enter(const IndexerScoresArgs& args, int of_group, int tile) {
      group = of_group;
      first = tile * KEYS;
      keys = keys_of(args, group);
      pages = args.page_table + static_cast<i64>(args.sequences[group * ROWS]) * args.page_stride;
    }
    // To the next tile, which there is.
    __forceinline__ void advance(const IndexerScoresArgs& args) {
      first += KEYS;
      if (first < keys) return;
      int next = group + 1;
      while (keys_of(args, next) == 0)
        ++next;
      enter(args, next, 0);
    }
    // The same `tiles` times.
    __forceinline__ void skip(const IndexerScoresArgs& args, int tiles) {
      for (int left = (keys - first + KEYS - 1) / KEYS; tiles >= left;
           left = (keys - first + KEYS - 1) / KEYS) {
        tiles -= left;
        first = keys;
        advance(args);
      }
      first += tiles * KEYS;
    }
  };

  struct Schedule {  // in shared memory
    int warp_sums[32];
    int group, tile;  // where the block's run begins
  };
  // Fills the schedule; returns the number of tiles in the block's run. All threads of the block
  // call it, those behind the first WARPS warps for the barriers alone; it ends with one.
  static __forceinline__ int find_run(Schedule& schedule, const IndexerScoresArgs& args) {
    constexpr int THREADS = 32 * WARPS;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int groups = (args.rows + ROWS - 1) / ROWS;
    const int share = (groups + THREADS - 1) / THREADS;  // neighbouring groups of a thread
    const int first = thread * share, last = min(first + share, groups);
    int mine = 0;
    for (int group = first; group < last; ++group)
      mine += (keys_of(args, group) + KEYS - 1) / KEYS;
    int sum = mine;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (lane == 31) schedule.warp_sums[warp] = sum;
    __syncthreads();
    int before = sum - mine, total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      if (w < warp) before += schedule.warp_sums[w];
      total += schedule.warp_sums[w];
    }
    const int begin = static_cast<int>(static_cast<i64>(total) * blockIdx.x / gridDim.x);
    const int end = static_cast<int>(static_cast<i64>(total) * (blockIdx.x + 1) / gridDim.x);
    if (before <= begin && begin < before + mine) {
      int tile = begin - before;
      for (int group = first; group < last; ++group) {
        const int tiles = (keys_of(args, group) + KEYS - 1) / KEYS;
        if (tile >= 0 && tile < tiles) {
          schedule.group = group;
          schedule.tile = tile;
        }
        tile -= tiles;
      }
    }
    __syncthreads();
    return end - begin;
  }

  // A lane's key `i` of a tile.
  static __forceinline__ int key(const Cursor& at, int i) {
    return at.first + static_cast<int>(threadIdx.x) / 32 * WARP_KEYS + 8 * i +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  static __forceinline__ void load_pages(const Cursor& at, int (&pages)[PAGES]) {
#pragma unroll
    for (int i = 0; i < PAGES; ++i)
      if (key(at, i) < at.keys) pages[i] = ptx::load_int(at.pages + key(at, i) / PAGE_ENTRIES);
  }

  // What a lane has of its keys, as stored: 32 codes, and the scales of all four groups.
  struct Stored {
    uint4 codes[LANE_KEYS];
    u32 scales[LANE_KEYS];

    __forceinline__ void load(const IndexerScoresArgs& args, const Cursor& at,
                              const int (&pages)[PAGES]) {
#pragma unroll
      for (int i = 0; i < LANE_KEYS; ++i) {
        codes[i] = make_uint4(0, 0, 0, 0);
        scales[i] = 0;
        if (key(at, i) >= at.keys) continue;
        const u8* const page = args.pool + static_cast<i64>(pages[PAGES == 1 ? 0 : i]) * PAGE_BYTES;
        const int place = static_cast<int>(static_cast<u32>(key(at, i)) % PAGE_ENTRIES);
        codes[i] = ptx::load_words(page + place * INDEX_CODE_BYTES + threadIdx.x % 4 * 16);
        scales[i] =
            ptx::load_word(page + PAGE_ENTRIES * INDEX_CODE_BYTES + place * INDEX_SCALE_BYTES);
      }
    }
  };

  // Scores of a lane's keys from its sums over the columns of its quad's lane.
  static __forceinline__ void store(const IndexerScoresArgs& args, const Cursor& at, int r,
                                    int count, float (&sums)[LANE_KEYS],
                                    const float (&units)[LANE_KEYS]) {
    float* const scores = args.scores + (static_cast<i64>(at.group) * ROWS + r) * args.score_stride;
#pragma unroll
    for (int i = 0; i < LANE_KEYS; ++i) {
      sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 1);
      sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], 2);
      if (static_cast<int>(threadIdx.x) % 4 == i % 2 && key(at, i) < count)
        scores[key(at, i)] = sums[i] * units[i];
    }
  }
};

// The part of a query head's group that a thread widens: codes, scales, and the head's weight.
struct StoredQuery {
  uint4 codes;
  u32 scales;
  float weight;

  // @param c  the group; rows that there are not have zeros
  static __forceinline__ StoredQuery load(const IndexerScoresArgs& args, int row, int heads,
                                          int head, int c) {
    StoredQuery q{make_uint4(0, 0, 0, 0), 0, 0.0f};
    if (row < args.rows) {
      const i64 at = static_cast<i64>(row) * heads + head;
      q.codes = *reinterpret_cast<const uint4*>(args.q + at * INDEX_CODE_BYTES + 16 * c);
      q.scales = *reinterpret_cast<const u32*>(args.q_scales + at * INDEX_SCALE_BYTES);
      q.weight = to_float(args.weights[at]);
    }
    return q;
  }
};

}  // namespace ingot::kernels
