// The tail of the indexer's queries: rope on the last 64 of a head's 128 dimensions, Hadamard
// transform, FP4 in groups of 32; and the heads' weights. Bit-exact with the reference.
// Source: model specification section 3.10.
// Launch contract (host twin: launch_shape in indexer_queries.space.hpp)
//   grid (HEADS / (WARPS * WARP_HEADS), rows)   block (32 * WARPS)   arch sm_80 and later
//   smem none   programmatic dependent launch: yes
#include "common/bf16.cuh"
#include "common/index_entry.cuh"
#include "common/launch.cuh"
#include "common/rope.cuh"
#include "indexer_queries.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "indexer_queries.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int DIMS = 128, LANE_DIMS = DIMS / 32, THREADS = 32 * WARPS;
constexpr int BLOCK_HEADS = WARPS * WARP_HEADS;
static_assert(HEADS % BLOCK_HEADS == 0, "blocks have whole heads");

extern "C" __global__ void __launch_bounds__(THREADS)
    indexer_queries(const __grid_constant__ IndexerQueriesArgs args) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.y;
  const int first = blockIdx.x * BLOCK_HEADS + warp * WARP_HEADS;
  const float frequency = args.frequencies[lane];
  release_successor();
  wait_for_predecessor();
  uint2 stored[WARP_HEADS];
#pragma unroll
  for (int h = 0; h < WARP_HEADS; ++h)
    stored[h] = *reinterpret_cast<const uint2*>(args.q + row * args.q_stride + (first + h) * DIMS +
                                                lane * LANE_DIMS);
  // Lane i turns pair i's angle into a rotation; the upper lanes hold two pairs each.
  const rope::Rotation mine = rope::rotation(args.positions[row], frequency);
  rope::Rotation turns[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int pair = lane % 16 * 2 + i;
    turns[i] = {__shfl_sync(0xffffffffu, mine.cosine, pair),
                __shfl_sync(0xffffffffu, mine.sine, pair)};
  }
#pragma unroll
  for (int h = 0; h < WARP_HEADS; ++h) {
    float x[LANE_DIMS] = {low_to_float(stored[h].x), high_to_float(stored[h].x),
                          low_to_float(stored[h].y), high_to_float(stored[h].y)};
    if (lane >= 16) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 turned = rope::rotate(x[2 * i], x[2 * i + 1], turns[i], false);
        x[2 * i] = to_float(to_bf16(turned.x));
        x[2 * i + 1] = to_float(to_bf16(turned.y));
      }
    }
    index_entry::transform(x);
    const i64 at = static_cast<i64>(row) * HEADS + first + h;
    index_entry::store(x, args.codes + at * (DIMS / 2), args.scales + at * 4);
    if (lane == 0) args.weights[at] = to_bf16(to_float(args.projected[at]) * args.weight_scale);
  }
}

}  // namespace ingot::kernels
