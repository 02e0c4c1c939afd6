// The router: gate logits in fp32, scores sqrt(softplus), the TOP best of score + bias with ties to
// the lowest id (or those of the token id), weights that sum to the route scale. Source: model
// specification section 3.11.
// Launch contract (host twin: launch_shape in router_topk.space.hpp)
//   grid GATE: (up to EXPERTS / BLOCK_EXPERTS, token groups), all resident at once
//        else: (ceil(tokens / WARPS))
//   block (32 * WARPS)   cluster none   smem router_topk_smem_bytes(...), dynamic
//   arch sm_80 and later   programmatic dependent launch: yes
//
// GATE: a block keeps its few rows of the gate in registers, 32 columns of 8 rows per warp and
// step, and walks over its group's tiles of 16 tokens (M of the MMA). Logits go to the workspace,
// where every word is its own flag (common/split_k.cuh). Then each warp takes tokens of the group,
// waits for all logits of one and chooses. Sums of a logit have one order, whatever the grid.
// What NaN and ids outside the table come to: common/router_choice.cuh. NaN stays in its token.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/router_choice.cuh"
#include "common/split_k.cuh"
#include "router_topk.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "router_topk.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(HIDDEN % 32 == 0 && EXPERTS % 8 == 0, "whole steps of columns, whole rows of MMA");
static_assert(BLOCK_EXPERTS == 4 || BLOCK_EXPERTS == 8, "a block's logits are 16-byte words");
static_assert(TOP <= 32 && TOP <= EXPERTS, "a lane per chosen expert");

constexpr int THREADS = 32 * WARPS;
constexpr int K_STEPS = HIDDEN / 32;
constexpr int WARP_STEPS = (K_STEPS + WARPS - 1) / WARPS;
constexpr bool STATIONARY = WARP_STEPS <= 16;  // the gate's rows stay in registers
constexpr int PARTIALS = GATE ? WARPS * ROUTER_TOKENS * BLOCK_EXPERTS : 0;
static_assert(THREADS >= ROUTER_TOKENS * BLOCK_EXPERTS / 4, "a word per thread");

__forceinline__ uint4 load_eight(const bf16* from, bool exists) {
  uint4 eight = make_uint4(0, 0, 0, 0);
  if (exists) eight = *reinterpret_cast<const uint4*>(from);
  return eight;
}
// This lane's columns of a step, of its row of a block's experts.
__forceinline__ uint4 load_gate(const RouterTopkArgs& args, int rows, int step, int lane) {
  const int row = rows * BLOCK_EXPERTS + lane / 4;
  return load_eight(args.gate + static_cast<i64>(row) * HIDDEN + step * 32 + lane % 4 * 8,
                    lane / 4 < BLOCK_EXPERTS && step < K_STEPS);
}

// Logits of 16 tokens and this block's experts, to the workspace.
__forceinline__ void multiply_tile(const RouterTopkArgs& args,
                                   const uint4 (&kept)[STATIONARY ? WARP_STEPS : 1], float* partial,
                                   int rows, int first, int warp, int lane) {
  float sums[4] = {};
  const int token = first + lane / 4;
  const bf16* const row = args.z + static_cast<i64>(token) * HIDDEN + lane % 4 * 8;
#pragma unroll
  for (int i = 0; i < WARP_STEPS; ++i) {
    const int step = i * WARPS + warp;
    const uint4 upper = load_eight(row + step * 32, token < args.tokens && step < K_STEPS);
    const uint4 lower =
        load_eight(row + 8 * HIDDEN + step * 32, token + 8 < args.tokens && step < K_STEPS);
    uint4 b;
    if constexpr (STATIONARY)
      b = kept[i];
    else
      b = load_gate(args, rows, step, lane);
    mma::bf16(sums, upper.x, lower.x, upper.y, lower.y, b.x, b.y);
    mma::bf16(sums, upper.z, lower.z, upper.w, lower.w, b.z, b.w);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (lane % 4 * 2 < BLOCK_EXPERTS)
      *reinterpret_cast<float2*>(
          partial + (warp * ROUTER_TOKENS + lane / 4 + 8 * half) * BLOCK_EXPERTS + lane % 4 * 2) =
          make_float2(sums[2 * half], sums[2 * half + 1]);
  __syncthreads();
  constexpr int QUADS = BLOCK_EXPERTS / 4;
  const int of = static_cast<int>(threadIdx.x) / QUADS, quad = threadIdx.x % QUADS;
  if (of < ROUTER_TOKENS && first + of < args.tokens) {
    float total[4] = {};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float4 four = *reinterpret_cast<const float4*>(
          partial + (w * ROUTER_TOKENS + of) * BLOCK_EXPERTS + quad * 4);
      total[0] += four.x, total[1] += four.y, total[2] += four.z, total[3] += four.w;
    }
    float* const to = static_cast<float*>(args.workspace) + static_cast<i64>(first + of) * EXPERTS +
                      rows * BLOCK_EXPERTS + quad * 4;
    ptx::store_relaxed(to, split_k::as_words(total));
  }
  __syncthreads();
}

// One token, by a whole warp. `scores`: [EXPERTS] of this warp.
__forceinline__ void choose(const RouterTopkArgs& args, float* scores, int token, int lane) {
  using Logits = router::Logits<EXPERTS>;
  Logits logits;
  if constexpr (GATE)
    logits.take(static_cast<float*>(args.workspace) + static_cast<i64>(token) * EXPERTS, lane);
  else
    logits.load(args.logits + static_cast<i64>(token) * EXPERTS, lane);
  const int listed = HASH ? router::listed_expert<EXPERTS, TOP>(args, token, lane) : 0;
  u32 keys[4 * Logits::WORDS];
#pragma unroll
  for (int w = 0; w < Logits::WORDS; ++w) {
    const u32 four[4] = {logits.words[w].x, logits.words[w].y, logits.words[w].z,
                         logits.words[w].w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      keys[4 * w + e] = 0;
      const int id = Logits::first_expert(w, lane) + e;
      if (id < EXPERTS) {
        const float score = router::score_of_any(__uint_as_float(four[e]));
        scores[id] = score;
        if constexpr (!HASH) keys[4 * w + e] = router::order_of(score + args.bias[id]);
      }
    }
  }
  __syncwarp();
  const int chosen = HASH ? listed : router::pick<EXPERTS, TOP>(keys, lane, [&](int n) {
    return Logits::first_expert(n / 4, lane) + n % 4;
  });
  router::store_choice<TOP>(args, scores, chosen, token, lane);
  __syncwarp();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    router_topk(const __grid_constant__ RouterTopkArgs args) {
  float* const partial = reinterpret_cast<float*>(ptx::dynamic_shared_memory());
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* const scores = partial + PARTIALS + warp * EXPERTS;
  if constexpr (GATE) {
    constexpr int ROW_BLOCKS = EXPERTS / BLOCK_EXPERTS;
    uint4 kept[STATIONARY ? WARP_STEPS : 1];
    const auto keep = [&](int rows) {
      if constexpr (STATIONARY) {
#pragma unroll
        for (int i = 0; i < WARP_STEPS; ++i)
          kept[i] = load_gate(args, rows, i * WARPS + warp, lane);
      }
    };
    keep(blockIdx.x);
    release_successor();
    wait_for_predecessor();
    const int tiles = (args.tokens + ROUTER_TOKENS - 1) / ROUTER_TOKENS;
    const int group = blockIdx.y, groups = gridDim.y;
#pragma unroll 1
    for (int rows = blockIdx.x; rows < ROW_BLOCKS; rows += gridDim.x) {
      if (rows != static_cast<int>(blockIdx.x)) keep(rows);
#pragma unroll 1
      for (int tile = group; tile < tiles; tile += groups)
        multiply_tile(args, kept, partial, rows, tile * ROUTER_TOKENS, warp, lane);
    }
    // Tokens of the group are dealt to its blocks first, then to their warps.
    const int count = ((tiles - 1 - group) / groups + 1) * ROUTER_TOKENS;
    const int blocks = gridDim.x;
#pragma unroll 1
    for (int i = warp * blocks + static_cast<int>(blockIdx.x); i < count; i += blocks * WARPS) {
      const int token = (group + i / ROUTER_TOKENS * groups) * ROUTER_TOKENS + i % ROUTER_TOKENS;
      if (token < args.tokens) choose(args, scores, token, lane);
    }
  } else {
    release_successor();
    wait_for_predecessor();
    const int token = static_cast<int>(blockIdx.x) * WARPS + warp;
    if (token < args.tokens) choose(args, scores, token, lane);
  }
}

}  // namespace ingot::kernels
