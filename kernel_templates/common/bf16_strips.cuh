#pragma once
// The strips of bf16_linear's weights: where they lie, and how their outputs are stored.
#include "bf16_linear.args.h"
#include "common/bf16.cuh"

namespace ingot::kernels::linear {

__forceinline__ int strips_of(const Bf16LinearArgs& args) {
  int strips = 0;
#pragma unroll
  for (int i = 0; i < BF16_SEGMENTS; ++i)
    strips += bf16_linear_strips(args.segments[i].rows);
  return strips;
}

// Where a strip of up to 128 rows lies.
struct Bf16Strip {
  const bf16* weight;  // its first row
  void* out;           // [tokens, out_stride] from the strip's first row on
  int rows, out_stride;
  bool out_bf16;
};

// No array of arguments indexed at run time: a selection is faster than its load.
template <int COLS>
__forceinline__ Bf16Strip strip_at(const Bf16LinearArgs& args, int strip) {
  Bf16Strip found{};
  int first = 0;
#pragma unroll
  for (int i = 0; i < BF16_SEGMENTS; ++i) {
    const Bf16LinearSegment& segment = args.segments[i];
    const int local = strip - first, row = local * BF16_TILE_ROWS;
    if (local >= 0 && row < segment.rows) {
      found.weight = segment.weight + static_cast<i64>(row) * COLS;
      found.out = static_cast<u8*>(segment.out) + row * (segment.out_bf16 ? 2 : 4);
      found.rows = min(BF16_TILE_ROWS, segment.rows - row);
      found.out_stride = segment.out_stride;
      found.out_bf16 = segment.out_bf16 != 0;
    }
    first += bf16_linear_strips(segment.rows);
  }
  return found;
}

// Stores a warp's fragments: lane 4g + c has rows g and g + 8 of tokens 2c and 2c + 1, so that
// eight lanes store eight neighbouring rows.
// @param token  the first fragment's first token; the next fragment's is 8 * stride further on
template <int COUNT>
__forceinline__ void store_fragments(const Bf16Strip& strip, const float (&sums)[COUNT][4],
                                     int token, int stride, int end, int warp, int lane) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int at = token + i * 8 * stride + lane % 4 * 2 + e % 2;
      const int row = warp * 16 + lane / 4 + e / 2 * 8;
      if (at >= end || row >= strip.rows) continue;
      const i64 place = static_cast<i64>(at) * strip.out_stride + row;
      if (strip.out_bf16)
        static_cast<bf16*>(strip.out)[place] = to_bf16(sums[i][e]);
      else
        static_cast<float*>(strip.out)[place] = sums[i][e];
    }
}

}  // namespace ingot::kernels::linear
