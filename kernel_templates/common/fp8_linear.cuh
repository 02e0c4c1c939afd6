#pragma once
// What the fp8_linear families share: how work is dealt to blocks, the input quantiser, the store.
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/ptx.cuh"
#include "common/types.cuh"
#include "fp8_linear.args.h"

namespace ingot::kernels::linear {

__forceinline__ int strips_of(const Fp8LinearSegment& segment) {
  return static_cast<u32>(segment.rows) / FP8_TILE;
}

// What one block works on: a tile of tokens and a range of K tiles, for every `step`th strip of 128
// weight rows. Grid (SPLIT_K, token tiles, blocks that share the strips): splits of a tile are
// neighbours, so that they run at the same time, then its token tiles, so that a strip's weights
// are read together.
template <int COLS, int TOKENS, int SPLIT_K>
struct Work {
  static constexpr int K_TILES = COLS / FP8_TILE;
  static constexpr int MOST_TILES = (K_TILES + SPLIT_K - 1) / SPLIT_K;  // of a split

  int split, token, rows;  // rows: tokens of the tile that exist
  int k_begin, tiles;      // K tiles of the whole, and how many of them are this split's
  int first_strip, strips, step;

  __forceinline__ explicit Work(const Fp8LinearArgs& args) {
    split = SPLIT_K == 1 ? 0 : static_cast<int>(blockIdx.x);
    token = static_cast<int>(blockIdx.y) * TOKENS;
    rows = min(TOKENS, args.tokens - token);
    if constexpr (K_TILES % SPLIT_K == 0) {
      k_begin = split * (K_TILES / SPLIT_K);
      tiles = K_TILES / SPLIT_K;
    } else {
      k_begin = fp8_linear_split_begin(K_TILES, SPLIT_K, split);
      tiles = fp8_linear_split_begin(K_TILES, SPLIT_K, split + 1) - k_begin;
    }
    first_strip = static_cast<int>(blockIdx.z);
    step = static_cast<int>(gridDim.z);
    strips =
        strips_of(args.segments[0]) + strips_of(args.segments[1]) + strips_of(args.segments[2]);
  }
};

// A strip's K tiles are visited in a circle, from another place on for each strip: blocks that run
// side by side read the same input, and would all ask L2 for the same few lines of it at the same
// moment. The order depends on the weight row alone, never on the token. `k` counts from k_begin.
__forceinline__ int first_tile(int strip, int tiles) {
  return static_cast<u32>(strip) * 13u % 32u * static_cast<u32>(tiles) / 32u;
}
__forceinline__ int next_tile(int k, int tiles) {
  return k + 1 == tiles ? 0 : k + 1;
}

// Where a strip of 128 rows lies.
struct Strip {
  const fp8_e4m3* tiles;  // [K_TILES][16384]
  const ue8m0* scale;     // [K_TILES]
  bf16* out;              // [tokens, out_stride], from the strip's first row on
  int out_stride;
};

template <int K_TILES>
__forceinline__ Strip strip_at(const Fp8LinearArgs& args, int strip) {
  const int first = strips_of(args.segments[0]);
  const int second = first + strips_of(args.segments[1]);
  // No array of arguments indexed at run time: a selection is faster than its load.
  const Fp8LinearSegment &a = args.segments[0], &b = args.segments[1], &c = args.segments[2];
  const bool in_a = strip < first, in_b = strip < second;
  const int local = in_a ? strip : in_b ? strip - first : strip - second;
  const i64 tile = static_cast<i64>(local) * K_TILES;
  return {(in_a   ? a.weight
           : in_b ? b.weight
                  : c.weight) +
              tile * FP8_TILE_BYTES,
          (in_a   ? a.scale
           : in_b ? b.scale
                  : c.scale) +
              tile,
          (in_a   ? a.out
           : in_b ? b.out
                  : c.out) +
              local * FP8_TILE,
          in_a   ? a.out_stride
          : in_b ? b.out_stride
                 : c.out_stride};
}

// The scales of a strip's tiles of one split, a tile per lane and register, as they are stored.
// They come straight from memory, so they are asked for one strip ahead; and they stay bytes until
// they are wanted: whoever makes numbers of them at once waits for the memory at once.
template <int MOST_TILES>
struct TileScaleBytes {
  static constexpr int COUNT = (MOST_TILES + 31) / 32;
  u32 byte[COUNT];

  // @param from  the split's first scale
  __forceinline__ void load(const ue8m0* from, int tiles, int lane) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      byte[i] = i * 32 + lane < tiles ? ptx::load_byte(from + i * 32 + lane) : 0;
  }
};

// The same as numbers.
template <int MOST_TILES>
struct TileScales {
  static constexpr int COUNT = TileScaleBytes<MOST_TILES>::COUNT;
  float value[COUNT];

  __forceinline__ void take(const TileScaleBytes<MOST_TILES>& bytes) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      value[i] = fp8::ue8m0_value(bytes.byte[i]);
  }
  __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      value[i] = 0.0f;
  }
  // Called by whole warps.
  __forceinline__ float at(int k) const {
    float chosen = value[0];
#pragma unroll
    for (int i = 1; i < COUNT; ++i)
      chosen = k / 32 == i ? value[i] : chosen;
    return __shfl_sync(0xffffffffu, chosen, k);  // modulo 32
  }
};

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

// Stores a warp's fragments (16 weight lines x 8 tokens each) as bf16; called by whole warps.
// @param token  the first fragment's first token; the next fragment's is 8 * stride further on
// @param end    the first token past this block's tile
// @param row    the warp's first row in the strip
template <int COUNT>
__forceinline__ void store_fragments(const Strip& strip, const float (&sums)[COUNT][4], int token,
                                     int stride, int end, int row, int lane) {
  u32 low[COUNT], high[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {  // all transposes first: each takes some 30 cycles
    low[i] = ptx::transpose_matrix(pack_bf16(sums[i][0], sums[i][1]));
    high[i] = ptx::transpose_matrix(pack_bf16(sums[i][2], sums[i][3]));
  }
  bf16* const to = strip.out + row + lane % 4 * 4;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int at = token + i * 8 * stride + lane / 4;
    if (at < end)
      *reinterpret_cast<uint2*>(to + static_cast<i64>(at) * strip.out_stride) =
          make_uint2(low[i], high[i]);
  }
}

// The same for fragments whose rows are 16 tokens and whose columns are weight lines: pairs of
// fragments are 16 lines, of which a lane holds four neighbouring rows for each of two tokens.
// @param token  the fragments' first token
// @param row    the first pair's first row in the strip; the next pair's is 16 * stride further on
// @param pairs  that exist
template <int COUNT>
__forceinline__ void store_token_fragments(const Strip& strip, const float (&sums)[COUNT][4],
                                           int token, int end, int row, int stride, int pairs,
                                           int lane) {
  token += lane / 4;
  bf16* const to = strip.out + static_cast<i64>(token) * strip.out_stride + row + lane % 4 * 4;
  bf16* const to_second = to + static_cast<i64>(8) * strip.out_stride;
#pragma unroll
  for (int i = 0; i < COUNT; i += 2) {
    if (i / 2 >= pairs) continue;
    const int offset = i / 2 * 16 * stride;
    if (token < end)
      *reinterpret_cast<uint2*>(to + offset) =
          make_uint2(pack_bf16(sums[i][0], sums[i][1]), pack_bf16(sums[i + 1][0], sums[i + 1][1]));
    if (token + 8 < end)
      *reinterpret_cast<uint2*>(to_second + offset) =
          make_uint2(pack_bf16(sums[i][2], sums[i][3]), pack_bf16(sums[i + 1][2], sums[i + 1][3]));
  }
}

}  // namespace ingot::kernels::linear
