#pragma once
// The tiles of a product of many tokens' experts: 256 weight rows and up to TOKENS rows of an
// expert, in the order of experts; token tiles that share weights side by side.
// The family's parameters are in scope, and ROW_TILES, such strips of an expert's weights.
#include "common/expert_rows.args.h"
#include "common/ptx.cuh"
#include "common/types.cuh"

namespace ingot::kernels::moe {

constexpr int MOST_TILES = moe_prefill_most_tiles(EXPERTS, TOPK, TOKENS);

// Of all experts.
struct Plan {
  int first[EXPERTS], count[EXPERTS];
  u16 first_tile[EXPERTS];
  u16 expert_of[MOST_TILES];
  int warp_tiles[EXPERTS / 32];
  int tiles;
};
static_assert(sizeof(Plan) <= moe_prefill_plan_bytes(EXPERTS, TOPK, TOKENS), "its place");

__forceinline__ int tiles_of(int count) {
  return (count + TOKENS - 1) / TOKENS;
}
// By all threads.
__forceinline__ void make_plan(Plan& plan, const int* first, const int* counts, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  int own = 0, running = 0;
  if (thread < EXPERTS) {
    plan.first[thread] = first[thread];
    const int count = counts[thread];
    plan.count[thread] = count;
    own = running = tiles_of(count);
  }
  if (warp < EXPERTS / 32) {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int lower = __shfl_up_sync(~0u, running, lanes);
      if (lane >= lanes) running += lower;
    }
    if (lane == 31) plan.warp_tiles[warp] = running;
  }
  __syncthreads();
  if (warp < EXPERTS / 32) {
    int begin = running - own;
    for (int w = 0; w < warp; ++w)
      begin += plan.warp_tiles[w];
    plan.first_tile[thread] = static_cast<u16>(begin);
    for (int i = 0; i < own; ++i)
      plan.expert_of[begin + i] = static_cast<u16>(thread);
    if (thread == EXPERTS - 1) plan.tiles = begin + own;
  }
  __syncthreads();
}

// A tile of the output.
struct Tile {
  int expert, strip;  // strip: of 256 weight rows
  int row, rows;      // first row, and how many: at most TOKENS

  __forceinline__ Tile(const Plan& plan, int index) {
    expert = plan.expert_of[index / ROW_TILES];
    const int local = index - plan.first_tile[expert] * ROW_TILES;
    const int count = plan.count[expert], tiles = tiles_of(count);
    strip = local / tiles;
    // Even parts, of whole rows of eight.
    const int part = ((count + tiles - 1) / tiles + 7) / 8 * 8, begin = local % tiles * part;
    row = plan.first[expert] + begin;
    rows = min(part, count - begin);
  }
  __forceinline__ int padded_rows() const { return (rows + 7) / 8 * 8; }
};
template <class Visit>
__forceinline__ void for_each_tile(const Plan& plan, Visit visit) {
  for (int i = static_cast<int>(blockIdx.x); i < plan.tiles * ROW_TILES;
       i += static_cast<int>(gridDim.x))
    visit(Tile(plan, i), i);
}

}  // namespace ingot::kernels::moe
