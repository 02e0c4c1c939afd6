#pragma once
// The producer warps of the sparse MLA decode families: they bring the keys of one piece, tile by
// tile, into a ring of stages in shared memory. Parameters of the family: BULK_COPY and the layout.
#include "common/barrier.cuh"
#include "common/ptx.cuh"
#include "common/sparse_mla.cuh"
#include "common/types.cuh"
#include "sparse_mla_decode.args.h"

namespace ingot::kernels::sparse_mla {

static_assert(ENTRY_STRIDE % 16 == 0 && WINDOW_PAGE_BYTES % 16 == 0 &&
                  SELECTED_PAGE_BYTES % 16 == 0,
              "entries are copied in 16-byte words");
// An entry's scales are copied with it where they follow it.
constexpr int COPIED_BYTES = SCALES_BESIDE ? MLA_SMEM_ROW_BYTES : MLA_ENTRY_BYTES;
static_assert(ENTRY_STRIDE >= COPIED_BYTES, "a copy stays within its entry");

struct Entry {
  const u8* data;
  const u8* scales;
};
__forceinline__ Entry entry_of(const SparseMlaDecodeArgs& args, bool in_window, int index) {
  const u32 entries = in_window ? WINDOW_PAGE_ENTRIES : SELECTED_PAGE_ENTRIES;
  const u32 page = static_cast<u32>(index) / entries, place = static_cast<u32>(index) % entries;
  const u8* base = in_window ? args.window_pool + static_cast<u64>(page) * WINDOW_PAGE_BYTES
                             : args.selected_pool + static_cast<u64>(page) * SELECTED_PAGE_BYTES;
  return {base + place * ENTRY_STRIDE, base + entries * ENTRY_STRIDE + place * MLA_SCALE_BYTES};
}

// Lane l of producer warp p has key p + l * PRODUCERS of every tile. Tile i lies in stage i %
// STAGES and is requested as soon as the stage is free. (A bulk copy with an address per lane takes
// its warp some 80 cycles, so a tile's keys are spread over several warps.)
template <int STAGES, int TILE_KV, int PRODUCERS>
struct Ring {
  // Scales that lie apart, and everything before sm_90, come by 8- and 16-byte copies of all lanes.
  static constexpr bool LANE_COPIES = !BULK_COPY || !SCALES_BESIDE;
  static constexpr int ARRIVALS =
      PRODUCERS * ((LANE_COPIES ? 32 : 0) + barrier::WARP_ARRIVALS);  // of a full barrier

  u32 full, empty;  // barriers of stage 0; 8 bytes to the next
  u8* rows;         // [STAGES][TILE_KV][592]
  u8* scales;       // [STAGES][TILE_KV][8], unless they lie beside the data
  int* used;        // [STAGES][TILE_KV]
  int producer, lane;

  // The whole warp zeroes the rows of the keys of `lanes`.
  __forceinline__ void zero_rows(u32 lanes, int stage, bool copied_over) const {
    while (lanes != 0) {
      const int key = producer + (__ffs(lanes) - 1) * PRODUCERS;
      lanes &= lanes - 1;
      u8* const row = rows + (stage * TILE_KV + key) * MLA_SMEM_ROW_BYTES;
#pragma unroll
      for (int at = 0; at < MLA_SMEM_ROW_BYTES; at += 512)
        if (at + lane * 16 < MLA_SMEM_ROW_BYTES)
          *reinterpret_cast<uint4*>(row + at + lane * 16) = make_uint4(0, 0, 0, 0);
    }
    if (copied_over) barrier::publish_to_async_proxy();
  }

  // One tile; `index` is this lane's entry or -1.
  __forceinline__ void request(const SparseMlaDecodeArgs& args, bool in_window, int index,
                               int stage, bool first_round, bool another_round) const {
    const int key = producer + lane * PRODUCERS;
    const bool exists = key < TILE_KV, used_here = index >= 0;
    const u32 barrier = full + stage * 8;
    u8* const row = rows + (stage * TILE_KV + key) * MLA_SMEM_ROW_BYTES;
    const Entry entry = entry_of(args, in_window, used_here ? index : 0);
    if constexpr (BULK_COPY) {
      const u32 bytes = __popc(__ballot_sync(0xffffffffu, used_here)) * COPIED_BYTES;
      if (lane == 0) barrier::expect(barrier, bytes);
      __syncwarp();
      if (used_here)
        barrier::copy_bulk(ptx::shared_address(row), entry.data, COPIED_BYTES, barrier);
    } else {
      const u64 address = reinterpret_cast<u64>(entry.data);
      for (int i = 0; i < 32 && producer + i * PRODUCERS < TILE_KV; ++i) {
        if (__shfl_sync(0xffffffffu, index, i) < 0) continue;
        const u8* from = reinterpret_cast<const u8*>(__shfl_sync(0xffffffffu, address, i));
        const u32 to = ptx::shared_address(rows + (stage * TILE_KV + producer + i * PRODUCERS) *
                                                      MLA_SMEM_ROW_BYTES);
#pragma unroll
        for (int at = 0; at < COPIED_BYTES; at += 512)
          if (at + lane * 16 < COPIED_BYTES)
            ptx::copy16_async(to + at + lane * 16, from + at + lane * 16);
      }
    }
    if (exists) {
      used[stage * TILE_KV + key] = used_here;
      if constexpr (!SCALES_BESIDE) {
        u8* to = scales + (stage * TILE_KV + key) * MLA_SCALE_BYTES;
        if (used_here)
          ptx::copy8_async(ptx::shared_address(to), entry.scales);
        else
          *reinterpret_cast<uint2*>(to) = make_uint2(0, 0);
      }
    }
    if (first_round) {
      // An unused row must not hold NaN; after the first round it holds an older key of this row.
      const u32 unused = __ballot_sync(0xffffffffu, exists && !used_here);
      if (unused != 0) zero_rows(unused, stage, another_round);
    }
    if constexpr (LANE_COPIES) barrier::arrive_when_copied(barrier);
    barrier::arrive_warp(barrier, lane);
  }

  // The whole piece. Calls __syncthreads once, when the first loads are on their way; barriers must
  // be set up before it.
  template <int PIECES>
  __forceinline__ void produce(const SparseMlaDecodeArgs& args, Keys keys, int row,
                               int piece_index) const {
    const int place = producer + lane * PRODUCERS;
    // The counts and, as if the lists were full, the first indices: one round trip when they are.
    Piece piece = piece_of<PIECES>(keys.count, piece_index);
    int key = piece.begin + place;
    int index = keys.index(key, place < TILE_KV ? piece.end : 0);
    const int in_window = ptx::load_int(args.window_counts + row);
    const int in_selected = selected_count(args, row);
    __syncthreads();
    if (keys.set_counts(in_window, in_selected)) {
      piece = piece_of<PIECES>(keys.count, piece_index);
      key = piece.begin + place;
      index = keys.index(key, place < TILE_KV ? piece.end : 0);
    }
    const int tiles = (piece.end - piece.begin + TILE_KV - 1) / TILE_KV;
    int stage = 0;
    u32 parity = 1;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int next = keys.index(key + TILE_KV, place < TILE_KV ? piece.end : 0);
      if (tile >= STAGES) barrier::wait(empty + stage * 8, parity);
      request(args, key < keys.window_count, index, stage, tile < STAGES, tile + STAGES < tiles);
      if (++stage == STAGES) stage = 0, parity ^= 1;
      key += TILE_KV;
      index = next;
    }
  }
};

}  // namespace ingot::kernels::sparse_mla
