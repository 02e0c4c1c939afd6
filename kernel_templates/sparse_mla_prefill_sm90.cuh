// Sparse MLA prefill on Hopper's wgmma: attention of many query rows, each over its own window and
// its own selected keys. What it computes, its arguments and contracts are those of
// sparse_mla_decode.cuh (unsplit rows; the exchange buffers are not used).
// Launch contract (host twin: launch_shape in sparse_mla_prefill_sm90.space.hpp)
//   grid (blocks), any number; block (512)   arch sm_90a
//   smem sparse_mla_prefill_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//
// An item is a row and TILE_HEADS of its heads; block b works on items b, b + grid, …, so that rows
// that are neighbours, and share most of their window, run at the same time. Keys and Q of the next
// item are on their way while the last one finishes, and its first scores are made while the result
// is written.
//
// The work of the warps: common/sparse_mla_warpgroups.cuh. Every sum has a fixed order. A row
// without keys has one tile of unused slots. Unused slots are zeroed before their tile is used, so
// no value of another row, NaN or not, is ever multiplied.
#include "common/launch.cuh"
#include "sparse_mla_prefill_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sparse_mla_prefill_sm90.params.def"
#undef PARAM
#endif
constexpr bool BULK_COPY = true;
#include "common/sparse_mla_warpgroups.cuh"

namespace ingot::kernels {

using sparse_mla::THREADS;

struct alignas(128) SharedStorage : sparse_mla::TileStorage {
  // Of an item, at its parity; from the score warps with the item's first tile.
  float2 rotations[2][MLA_ROPE_DIMS / 2];
  float sinks[2][TILE_HEADS];  // -inf without
  int tiles[2], items[2];
  float results[TILE_HEADS];  // what the finished O is multiplied by
};
constexpr int SMEM_BYTES = sparse_mla_prefill_sm90_smem_bytes(TILE_HEADS, STAGES, SCALES_BESIDE);
static_assert(sizeof(SharedStorage) <= SMEM_BYTES, "the host's formula covers the storage");
static_assert(sizeof(SharedStorage) + 127 >= SMEM_BYTES, "the host's formula wastes nothing");

// The items of this block, one after the other; the counts of the next one are asked for early.
struct Items {
  const SparseMlaDecodeArgs& args;
  int item, head_tiles, next_window = 0, next_selected = 0;

  __forceinline__ explicit Items(const SparseMlaDecodeArgs& a)
      : args(a), item(blockIdx.x), head_tiles(a.heads / TILE_HEADS) {
    request(item);
  }
  __forceinline__ void request(int of) {
    if (!exists(of)) return;
    next_window = ptx::load_int(args.window_counts + of / head_tiles);
    next_selected = sparse_mla::selected_count(args, of / head_tiles);
  }
  __forceinline__ bool exists(int of) const { return of < args.rows * head_tiles; }
  __forceinline__ int next() const { return item + static_cast<int>(gridDim.x); }
  __forceinline__ int row() const { return item / head_tiles; }
  __forceinline__ int first_head() const { return item % head_tiles * TILE_HEADS; }
  // Of the item whose counts were asked for last. An item without keys has one tile, too.
  __forceinline__ int tiles() const {
    return max((next_window + next_selected + sparse_mla::TILE_KV - 1) / sparse_mla::TILE_KV, 1);
  }
};

__forceinline__ void run_scores(SharedStorage& shared, const SparseMlaDecodeArgs& args) {
  const sparse_mla::Scores scores(shared);
  Items items(args);
  const auto q_of = [&](int item) {
    return args.q + static_cast<i64>(item) * (sparse_mla::Q_BYTES / 2);
  };
  const auto copy_q = [&](int item) {
    const u32 q_full = ptx::shared_address(&shared.q_full);
    barrier::arrive_expect(q_full, sparse_mla::Q_BYTES);
    barrier::copy_bulk(ptx::shared_address(shared.q), q_of(item), sparse_mla::Q_BYTES, q_full);
  };
  if (scores.thread == 0 && items.exists(items.item)) copy_q(items.item);
  sparse_mla::Place at;
  u32 parity = 0;  // of the item
  bool first_of_all = true;
#pragma unroll 1
  for (; items.exists(items.item); items.item = items.next()) {
    const int tiles = items.tiles();
    const bool another = items.exists(items.next());
    items.request(items.next());
    if (another && scores.thread == 0)
      barrier::prefetch_bulk(q_of(items.next()), sparse_mla::Q_BYTES);
    sparse_mla::Role::wait(shared.q_full, parity);
    float sink = sparse_mla::negative_infinity();
    if (HAS_SINK && scores.thread < TILE_HEADS)
      sink = ptx::load_float(args.sink + items.first_head() + scores.thread);
    sparse_mla::RotationInputs rotation;
    if (INVERSE_ROPE && scores.warp == 3) rotation.request(args, items.row(), scores.lane);
    scores.convert_q();
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      scores.make(at, first_of_all, [&] {
        if (tile > 0) return;
        if (scores.thread < TILE_HEADS) shared.sinks[parity][scores.thread] = sink;
        if (INVERSE_ROPE && scores.warp == 3) rotation.store(shared.rotations[parity], scores.lane);
        if (scores.thread == 0) {
          shared.tiles[parity] = tiles;
          shared.items[parity] = items.item;
        }
      });
      first_of_all = false;
      at.advance();
    }
    sparse_mla::Scores::sync();  // nobody reads this Q any more
    if (another && scores.thread == 0) copy_q(items.next());
    parity ^= 1;
  }
}

__forceinline__ void run_values(SharedStorage& shared, const SparseMlaDecodeArgs& args) {
  const auto exists = [&](int item) { return item < args.rows * (args.heads / TILE_HEADS); };
  if (!exists(static_cast<int>(blockIdx.x))) return;
  sparse_mla::Values values(shared);
  sparse_mla::Place at;
#pragma unroll 1
  for (u32 parity = 0;; parity ^= 1) {
    values.clear();
    int tile = 0;
#pragma unroll 1
    do {
      values.take(at, tile == 0);
      at.advance();
    } while (++tile < shared.tiles[parity]);
    values.finish();
    sparse_mla::Values::sync();
    if (values.thread < TILE_HEADS)
      shared.results[values.thread] = sparse_mla::Merge<1>::factor(
          shared.totals[values.thread], shared.sinks[parity][values.thread]);
    sparse_mla::Values::sync();
    const int item = shared.items[parity];
    values.write<INVERSE_ROPE>(args.out + static_cast<i64>(item) * (TILE_HEADS * MLA_DIMS),
                               shared.results, shared.rotations[parity]);
    if (!exists(item + static_cast<int>(gridDim.x))) return;
  }
}

__forceinline__ void run_producer(SharedStorage& shared, const SparseMlaDecodeArgs& args) {
  const int producer = threadIdx.x / 32 - sparse_mla::FIRST_PRODUCER, lane = threadIdx.x % 32;
  const sparse_mla::KeyRing ring = sparse_mla::ring_of(shared, producer, lane);
  Items items(args);
  if (!items.exists(items.item)) return;
  const int place =
      producer + lane * sparse_mla::PRODUCER_WARPS;  // of this lane's key in every tile
  sparse_mla::Keys keys(args, items.row());
  keys.set_counts(items.next_window, items.next_selected);
  int index = keys.index(place, place < sparse_mla::TILE_KV ? keys.count : 0);
  sparse_mla::Place at;
  bool first_round = true;
#pragma unroll 1
  while (true) {
    const int tiles = items.tiles();
    const bool another = items.exists(items.next());
    items.request(items.next());
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const bool in_window = tile * sparse_mla::TILE_KV + place < keys.window_count;
      int next = -1;
      if (tile + 1 < tiles) {
        next = keys.index((tile + 1) * sparse_mla::TILE_KV + place,
                          place < sparse_mla::TILE_KV ? keys.count : 0);
      } else if (another) {
        keys = sparse_mla::Keys(args, items.next() / items.head_tiles);
        keys.set_counts(items.next_window, items.next_selected);
        next = keys.index(place, place < sparse_mla::TILE_KV ? keys.count : 0);
      }
      if (!first_round) barrier::wait(ptx::shared_address(&shared.empty[at.stage]), at.round ^ 1);
      ring.request(args, in_window, index, at.stage, true, true);
      at.advance();
      if (at.stage == 0) first_round = false;
      index = next;
    }
    if (!another) return;
    items.item = items.next();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sparse_mla_prefill_sm90(const __grid_constant__ SparseMlaDecodeArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int warp = threadIdx.x / 32;
  if (warp == sparse_mla::FIRST_PRODUCER) sparse_mla::set_up_barriers(shared, threadIdx.x % 32);
  __syncthreads();
  release_successor();
  wait_for_predecessor();
  if (warp >= sparse_mla::FIRST_PRODUCER) {
    ptx::give_registers<sparse_mla::PRODUCER_REGISTERS>();
    run_producer(shared, args);
  } else if (warp < sparse_mla::FIRST_VALUE_WARP) {
    ptx::give_registers<sparse_mla::SCORE_REGISTERS>();
    run_scores(shared, args);
  } else {
    ptx::take_registers<sparse_mla::VALUE_REGISTERS>();
    run_values(shared, args);
  }
}

}  // namespace ingot::kernels
