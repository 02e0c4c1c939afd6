// Rows of experts from the router's ids: where each expert's rows start, how many it has, and which
// row every pair (token, expert) gets.
// Launch contract (host twin: launch_shape in expert_order.space.hpp)
//   grid (EXPERTS)   block (THREADS)   cluster none   smem 8 * THREADS / 32 bytes   arch sm_80 and
//   later programmatic dependent launch: yes
//
// A block finds its expert's tokens by reading all ids, twice: each warp a contiguous part, first
// to count, then to number. So rows are in the order of tokens whatever the timing, and no block
// waits for another.
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "expert_order.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "expert_order.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int WARPS = THREADS / 32;
static_assert(THREADS % 32 == 0 && WARPS <= 32, "a lane adds a warp's count");

extern "C" __global__ void __launch_bounds__(THREADS)
    expert_order(const __grid_constant__ ExpertOrderArgs args) {
  int* const own_of_warp = reinterpret_cast<int*>(ptx::dynamic_shared_memory());
  int* const below_of_warp = own_of_warp + WARPS;
  release_successor();
  wait_for_predecessor();
  const int expert = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32, pairs = args.tokens * TOPK;
  const int share = ((pairs + WARPS - 1) / WARPS + 31) / 32 * 32;
  const int begin = min(warp * share, pairs), end = min(begin + share, pairs);

  int own = 0, below = 0;  // of this lane
#pragma unroll 4
  for (int p = begin + lane; p < end; p += 32) {
    const int id = args.experts[p];
    own += id == expert ? 1 : 0;
    below += id < expert ? 1 : 0;
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    own += __shfl_xor_sync(~0u, own, lanes);
    below += __shfl_xor_sync(~0u, below, lanes);
  }
  if (lane == 0) {
    own_of_warp[warp] = own;
    below_of_warp[warp] = below;
  }
  __syncthreads();
  int before = 0, all_own = 0, all_below = 0;
  for (int w = 0; w < WARPS; ++w) {
    before += w < warp ? own_of_warp[w] : 0;
    all_own += own_of_warp[w];
    all_below += below_of_warp[w];
  }
  const int first = expert_first_row(all_below, expert);
  if (thread == 0) {
    args.first[expert] = first;
    args.count[expert] = all_own;
  }
  if (own == 0) return;
  int row = first + before;
  for (int at = begin; at < end; at += 32) {
    const int p = at + lane;
    const bool mine = p < end && args.experts[min(p, end - 1)] == expert;
    const u32 all = __ballot_sync(~0u, mine);
    if (mine) {
      const int to = row + __popc(all & ((1u << lane) - 1));
      args.row_of[p] = to;
      args.row_weight[to] = args.weights[p];
    }
    row += __popc(all);
  }
}

}  // namespace ingot::kernels
