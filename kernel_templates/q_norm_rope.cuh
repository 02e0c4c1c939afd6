// The queries' tail: per-head RMS norm without weight, then rope on the last 64 dimensions, in
// place. Source: model specification sections 3.6 (steps 3, 4) and 3.3.
// Launch contract (host twin: launch_shape in q_norm_rope.space.hpp)
//   grid (ceil(heads / (WARPS * HEADS_PER_WARP)), tokens)   block (32 * WARPS)   cluster none
//   smem kQNormRopeSmemBytes, dynamic   arch sm_80 and later   programmatic dependent launch: yes
//
// The norm is the reference's bf16 arithmetic: squares, their mean, mean + epsilon, its reciprocal
// square root and the products are each rounded to bf16; only the sum is fp32, in another order, so
// a mean next to a rounding boundary can tip the scale of a head by one unit in the last place.
// NaN and infinity stay in their head.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/rope.cuh"
#include "q_norm_rope.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "q_norm_rope.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int LANE_DIMS = DIMS / 32;
constexpr int LANE_VECTORS = LANE_DIMS / 8;
constexpr int TURNED_LANES = Q_ROPE_DIMS / LANE_DIMS;
constexpr int LANE_PAIRS = LANE_DIMS / 2;
static_assert(DIMS % 256 == 0 && DIMS <= 2048, "a lane has 1 to 8 vectors of 8 dimensions");

__forceinline__ float round_bf16(float x) {
  return to_float(to_bf16(x));
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    q_norm_rope(const __grid_constant__ QNormRopeArgs args) {
  float2* const turns = reinterpret_cast<float2*>(ptx::dynamic_shared_memory());  // [32]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const i64 token = blockIdx.y;
  // Double arithmetic is slow on many cards: one warp turns the token's angles into rotations. It
  // does so before the launch's turn: the token's position is there since before the step.
  if (warp == 0) {
    const rope::Rotation mine = rope::rotation(args.positions[token], args.frequencies[lane]);
    turns[lane] = make_float2(mine.cosine, mine.sine);
  }
  release_successor();
  wait_for_predecessor();
  const int first = (static_cast<int>(blockIdx.x) * WARPS + warp) * HEADS_PER_WARP;
  u32 words[HEADS_PER_WARP][LANE_PAIRS];
#pragma unroll
  for (int h = 0; h < HEADS_PER_WARP; ++h) {
    if (first + h >= args.heads) continue;
    const bf16* from = args.q + token * args.q_stride + (first + h) * DIMS + lane * LANE_DIMS;
#pragma unroll
    for (int v = 0; v < LANE_VECTORS; ++v) {
      const uint4 eight = *reinterpret_cast<const uint4*>(from + v * 8);
      words[h][v * 4] = eight.x, words[h][v * 4 + 1] = eight.y;
      words[h][v * 4 + 2] = eight.z, words[h][v * 4 + 3] = eight.w;
    }
  }
  __syncthreads();

#pragma unroll
  for (int h = 0; h < HEADS_PER_WARP; ++h) {
    if (first + h >= args.heads) continue;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < LANE_PAIRS; ++i) {
      const float low = low_to_float(words[h][i]), high = high_to_float(words[h][i]);
      squares += round_bf16(low * low);
      squares += round_bf16(high * high);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
      squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
    const float mean = round_bf16(squares * (1.0f / DIMS));
    // The plain reciprocal of the plain root, as the reference has it; rsqrt may round otherwise.
    const float scale = round_bf16(1.0f / sqrtf(round_bf16(mean + args.epsilon)));
#pragma unroll
    for (int i = 0; i < LANE_PAIRS; ++i)
      words[h][i] =
          pack_bf16(low_to_float(words[h][i]) * scale, high_to_float(words[h][i]) * scale);
    if (lane >= 32 - TURNED_LANES) {
#pragma unroll
      for (int i = 0; i < LANE_PAIRS; ++i) {
        const float2 turn = turns[(lane - (32 - TURNED_LANES)) * LANE_PAIRS + i];
        const float2 turned = rope::rotate(low_to_float(words[h][i]), high_to_float(words[h][i]),
                                           {turn.x, turn.y}, false);
        words[h][i] = pack_bf16(turned.x, turned.y);
      }
    }
    bf16* to = args.q + token * args.q_stride + (first + h) * DIMS + lane * LANE_DIMS;
#pragma unroll
    for (int v = 0; v < LANE_VECTORS; ++v)
      *reinterpret_cast<uint4*>(to + v * 8) = make_uint4(words[h][v * 4], words[h][v * 4 + 1],
                                                         words[h][v * 4 + 2], words[h][v * 4 + 3]);
  }
}

}  // namespace ingot::kernels
