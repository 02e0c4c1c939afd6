#pragma once
// What the fp8_linear families share: how work is dealt to blocks, the input quantiser, the store.
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/ptx.cuh"
#include "common/types.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels::linear {

// One piece of work: 128 weight rows x one tile of tokens x a range of K tiles.
struct Unit {
  int strip, token_tile, split, k_begin, k_end;
};

// Blocks (or clusters) take units first, first + step, … Splits of a tile are neighbours, so that
// they run at the same time, then its token tiles, so that a strip's weights are read together.
template <int TOKENS, int SPLIT_K, int CLUSTER>
struct Schedule {
  int units, first, step, token_groups, k_tiles;

  __forceinline__ explicit Schedule(const Fp8LinearArgs& args) {
    int strips = 0;
    for (int i = 0; i < args.segment_count; ++i)
      strips += args.segments[i].rows / FP8_TILE;
    token_groups = (args.tokens + TOKENS * CLUSTER - 1) / (TOKENS * CLUSTER);
    k_tiles = args.cols / FP8_TILE;
    units = strips * token_groups * SPLIT_K;
    first = blockIdx.x / CLUSTER;
    step = gridDim.x / CLUSTER;
  }
  // @param rank  of the block in its cluster
  __forceinline__ Unit unit(int index, int rank) const {
    const int tile = index / SPLIT_K, split = index % SPLIT_K;
    const int strip = token_groups == 1 ? tile : tile / token_groups;
    return {strip, (tile - strip * token_groups) * CLUSTER + rank, split,
            fp8_linear_split_begin(k_tiles, SPLIT_K, split),
            fp8_linear_split_begin(k_tiles, SPLIT_K, split + 1)};
  }
};

// Where a strip of 128 rows lies.
struct Strip {
  const fp8_e4m3* tiles;  // [k_tiles][16384]
  const ue8m0* scale;     // [k_tiles] ue8m0
  bf16* out;              // [tokens, out_stride], from the strip's first row on
  int out_stride;
};

__forceinline__ Strip strip_at(const Fp8LinearArgs& args, int strip, int k_tiles) {
  int segment = 0;
  while (segment + 1 < args.segment_count && strip >= args.segments[segment].rows / FP8_TILE)
    strip -= args.segments[segment++].rows / FP8_TILE;
  const Fp8LinearSegment& s = args.segments[segment];
  const i64 tile = static_cast<i64>(strip) * k_tiles;
  return {s.weight + tile * FP8_TILE_BYTES, s.scale + tile, s.out + strip * FP8_TILE, s.out_stride};
}

// A unit's K tiles are visited in chunks of 32, each from another place on for each strip: blocks
// that run side by side read the same input, and would all ask L2 for the same few lines of it at
// the same moment. The order depends on the weight row alone, never on the token.
struct Chunk {
  int begin, length, first;  // K tiles begin .. begin + length - 1, starting with `first`

  __forceinline__ Chunk(const Unit& unit, int at)
      : begin(at),
        length(min(32, unit.k_end - at)),
        first(at + (unit.strip * 13 % 32 * length) / 32) {}
  __forceinline__ int after(int k) const { return k + 1 == begin + length ? begin : k + 1; }
};

// Calls visit(k) for the K tiles of a unit, in that order.
template <class Visit>
__forceinline__ void for_each_k_tile(const Unit& unit, Visit visit) {
  for (int begin = unit.k_begin; begin < unit.k_end; begin += 32) {
    const Chunk chunk(unit, begin);
    int k = chunk.first;
    for (int i = 0; i < chunk.length; ++i, k = chunk.after(k))
      visit(k);
  }
}

// Scales of up to 32 K tiles of a strip from `k` on, one per lane.
__forceinline__ float tile_scales(const Strip& strip, int k, int k_end, int lane) {
  return k + lane < k_end ? fp8::ue8m0_value(ptx::load_byte(strip.scale + k + lane)) : 0.0f;
}

// Quantises bf16 rows into shared memory: e4m3 tiles [k_tiles][TOKENS][128] as fp8_tile_offset
// lays them out, scales [k_tiles][TOKENS]. A group that holds NaN gets a NaN scale.
// @param x        the first token's first column
// @param threads  that call this, a multiple of 32; half a warp takes 128 columns of one token
template <int TOKENS>
__forceinline__ void quantize_input(const bf16* x, i64 row_stride, int rows, int k_tiles, u8* tiles,
                                    float* scales, int thread, int threads) {
  constexpr int BATCH = 4;  // loads in flight
  const int items = rows * k_tiles, part = thread % 16, stride = threads / 16;
  for (int base = thread / 32 * 2; base < items; base += stride * BATCH) {
    uint4 values[BATCH];
    int row[BATCH], k[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int item = min(base + i * stride + thread % 32 / 16, items - 1);
      row[i] = item / k_tiles;
      k[i] = item - row[i] * k_tiles;
      values[i] =
          *reinterpret_cast<const uint4*>(x + row[i] * row_stride + k[i] * FP8_TILE + part * 8);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (base + i * stride >= items) continue;
      // The last item of an odd number is done by both halves of a warp: same bytes, same place.
      const fp8::Quantized group = fp8::quantize_group(values[i]);
      *reinterpret_cast<uint2*>(tiles + k[i] * (TOKENS * FP8_TILE) +
                                fp8_tile_offset(row[i], part * 8)) = group.codes;
      if (part == 0) scales[k[i] * TOKENS + row[i]] = group.scale;
    }
  }
}

// Stores a warp's fragment (16 weight lines x 8 tokens) as bf16; called by whole warps.
// @param token  the fragment's first token
// @param row    the warp's first row in the strip
__forceinline__ void store_fragment(const Strip& strip, const float (&sum)[4], int token,
                                    int tokens, int row, int lane) {
  const u32 low = ptx::transpose_matrix(pack_bf16(sum[0], sum[1]));
  const u32 high = ptx::transpose_matrix(pack_bf16(sum[2], sum[3]));
  token += lane / 4;
  if (token < tokens)
    *reinterpret_cast<uint2*>(strip.out + static_cast<i64>(token) * strip.out_stride + row +
                              lane % 4 * 4) = make_uint2(low, high);
}

}  // namespace ingot::kernels::linear
