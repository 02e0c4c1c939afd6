// y = actquant(x) * W^T on Hopper's FP8 tensor cores: weights e4m3 with a ue8m0 scale per 128 x 128
// block, inputs e4m3 with a power-of-two scale per token and 128 columns, fp32 sums.
// Launch contract (host twin: launch_shape in fp8_linear_sm90.space.hpp)
//   grid (blocks), all resident at once when SPLIT_K > 1   block (384)   cluster (CLUSTER)   sm_90a
//   smem fp8_linear_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   with X_RESIDENT every unit of a block has the same split and token tile
//
// Operands are swapped: weight rows are M (64 per warpgroup), tokens are N, so few tokens cost
// little and one structure serves 1 to 256 of them. At few tokens this is a weight stream and
// everything below serves to keep copies in flight; at 128 tokens per tile it is bound by the
// tensor cores and by L2, which a cluster of two token tiles relieves by multicast.
//
// A tile is 128 weight rows x 128 columns. A block walks over units (strip of 128 rows, token tile,
// split of K). Warps 0-7 multiply, warp 8 streams weights, warp 9 brings the input (10 and 11 fill
// the warpgroup, which gives its registers to the others). The weight stream starts before the
// predecessor has finished: weights depend on nothing. The tensor core's own accumulation keeps
// about 14 bits, so partial sums of one tile (128 columns) are added to fp32 registers, which is
// also where the scales come in.
//
// NaN or infinity in a token stays in that token's output: tokens are columns of the mma and meet
// nowhere. Columns of tokens past the end hold whatever was in shared memory; they are not stored.
#include "common/barrier.cuh"
#include "common/fp8.cuh"
#include "common/fp8_linear.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/split_k.cuh"
#include "common/wgmma.cuh"
#include "fp8_linear_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "fp8_linear_sm90.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 8 || TOKENS == 16 || TOKENS == 32 || TOKENS == 64 || TOKENS == 128,
              "TOKENS is the N of the mma");
static_assert(CLUSTER == 1 || CLUSTER == 2, "a cluster is one token tile or two");
static_assert(X_RESIDENT || !QUANTIZE, "what is quantised here stays in shared memory");
static_assert(STAGES >= 2 && SPLIT_K >= 1, "a ring has two stages at least");

constexpr int MATH_WARPS = 8, WEIGHT_WARP = 8, INPUT_WARP = 9, THREADS = 384;
constexpr int TOKEN_BLOCKS = TOKENS / 8;
constexpr int X_TILE_BYTES = TOKENS * FP8_TILE;
// Many tokens need more than the 168 registers that 12 warps can have each.
constexpr bool MOVE_REGISTERS = TOKENS >= 64;
// Two warpgroups that multiply at the same time also wait and scale at the same time, and the
// tensor cores idle meanwhile. With many tokens they take turns: one's mma runs while the other
// scales.
constexpr bool TAKE_TURNS = TOKENS >= 64;
constexpr int READY = 1, QUANTIZED = 2, TURN = 3;  // named barriers; TURN + warpgroup

// Addresses in shared memory, in this order: weight ring, input tiles, input scales, barriers.
struct Shared {
  u32 weights, inputs, full, empty, input_full;
  u8* input_tiles;
  float* input_scales;

  __forceinline__ Shared(u8* base, int k_tiles) {
    // Split 0 is the longest.
    const int x_tiles = X_RESIDENT ? fp8_linear_split_begin(k_tiles, SPLIT_K, 1) : STAGES;
    input_tiles = base + STAGES * FP8_TILE_BYTES;
    input_scales = reinterpret_cast<float*>(input_tiles + x_tiles * X_TILE_BYTES);
    weights = ptx::shared_address(base);
    inputs = ptx::shared_address(input_tiles);
    full = ptx::shared_address(input_scales + x_tiles * TOKENS);
    empty = full + STAGES * 8;
    input_full = empty + STAGES * 8;
  }
};

// Position in the ring: a stage and the parity of its current round.
struct Ring {
  int stage = 0;
  u32 parity = 0;
  __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

using Work = linear::Schedule<TOKENS, SPLIT_K, CLUSTER>;

// One lane. A cluster's blocks read half of each tile, for both of them.
__forceinline__ void stream_weights(const Fp8LinearArgs& args, const Work& work,
                                    const Shared& shared, u32 rank) {
  constexpr int SHARE = FP8_TILE_BYTES / CLUSTER;
  const u64 policy = barrier::evict_first_policy();
  Ring ring;
  bool first_round = true;  // nobody has to free these stages
  for (int u = work.first; u < work.units; u += work.step) {
    const linear::Unit unit = work.unit(u, rank);
    const fp8_e4m3* tiles = linear::strip_at(args, unit.strip, work.k_tiles).tiles + rank * SHARE;
    linear::for_each_k_tile(unit, [&](int k) {
      const u32 full = shared.full + ring.stage * 8;
      const u32 to = shared.weights + ring.stage * FP8_TILE_BYTES + rank * SHARE;
      const fp8_e4m3* from = tiles + static_cast<i64>(k) * FP8_TILE_BYTES;
      if (!first_round) barrier::wait(shared.empty + ring.stage * 8, ring.parity ^ 1);
      barrier::arrive_expect(full, FP8_TILE_BYTES);
      if constexpr (CLUSTER == 1)
        barrier::copy_bulk(to, from, SHARE, full, policy);
      else
        barrier::copy_bulk_multicast(to, from, SHARE, full, (1 << CLUSTER) - 1, policy);
      ring.advance();
      if (ring.stage == 0) first_round = false;
    });
  }
}

// Copies the quantised input of one K tile: rows * 128 + input_scale_bytes(rows) bytes.
__forceinline__ u32 input_scale_bytes(int rows) {
  return (rows + 3) / 4 * 16;
}
__forceinline__ void copy_input_tile(const Fp8LinearArgs& args, const Shared& shared, int token,
                                     int rows, int k, int to_tile, u32 full) {
  const i64 from = static_cast<i64>(k) * args.x_rows + token;
  barrier::copy_bulk(shared.inputs + to_tile * X_TILE_BYTES, args.xq + from * FP8_TILE,
                     rows * FP8_TILE, full);
  barrier::copy_bulk(ptx::shared_address(shared.input_scales + to_tile * TOKENS),
                     args.x_scale + from, input_scale_bytes(rows), full);
}

// The input warp, for input that comes quantised.
__forceinline__ void bring_input(const Fp8LinearArgs& args, const Work& work, const Shared& shared,
                                 u32 rank, int lane) {
  if constexpr (X_RESIDENT) {
    const linear::Unit unit = work.unit(work.first, rank);
    const int token = unit.token_tile * TOKENS, rows = min(TOKENS, args.tokens - token);
    const int tiles = unit.k_end - unit.k_begin;
    if (lane == 0)
      barrier::arrive_expect(shared.input_full,
                             tiles * (rows * FP8_TILE + input_scale_bytes(rows)));
    __syncwarp();
    for (int i = lane; i < tiles; i += 32) {
      copy_input_tile(args, shared, token, rows, unit.k_begin + i, i, shared.input_full);
    }
  } else if (lane == 0) {
    Ring ring;
    bool first_round = true;
    for (int u = work.first; u < work.units; u += work.step) {
      const linear::Unit unit = work.unit(u, rank);
      const int token = unit.token_tile * TOKENS, rows = min(TOKENS, args.tokens - token);
      linear::for_each_k_tile(unit, [&](int k) {
        const u32 full = shared.full + ring.stage * 8;
        if (!first_round) barrier::wait(shared.empty + ring.stage * 8, ring.parity ^ 1);
        barrier::arrive_expect(full, rows * FP8_TILE + input_scale_bytes(rows));
        copy_input_tile(args, shared, token, rows, k, ring.stage, full);
        ring.advance();
        if (ring.stage == 0) first_round = false;
      });
    }
  }
}

// sums += one tile: 64 weight rows of this warpgroup x TOKENS, 128 columns.
__forceinline__ void multiply_tile(float (&sums)[TOKEN_BLOCKS][4], float (&part)[TOKEN_BLOCKS][4],
                                   const Shared& shared, const Ring& ring, int x_tile,
                                   float weight_scale, int warp, int lane) {
  const u64 a = wgmma::tile_descriptor(shared.weights + ring.stage * FP8_TILE_BYTES +
                                       warp / 4 * (64 * FP8_TILE));
  const u64 b = wgmma::tile_descriptor(shared.inputs + x_tile * X_TILE_BYTES);
  float2 scale[TOKEN_BLOCKS];
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    scale[j] = ptx::load_shared(shared.input_scales + x_tile * TOKENS + j * 8 + lane % 4 * 2);
    scale[j].x *= weight_scale;
    scale[j].y *= weight_scale;
    wgmma::hold(scale[j].x);  // computed here, not between the mma below
    wgmma::hold(scale[j].y);
  }
  if constexpr (TAKE_TURNS) ptx::sync_threads(TURN + warp / 4, MATH_WARPS * 32);
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      wgmma::hold(part[j][e]);
  wgmma::fence();
#pragma unroll
  for (int step = 0; step < FP8_TILE / 32; ++step)
    wgmma::mma_e4m3<TOKENS>(part, a + step * wgmma::kStep32, b + step * wgmma::kStep32, step > 0);
  wgmma::commit();
  if constexpr (TAKE_TURNS) ptx::arrive_threads(TURN + 1 - warp / 4, MATH_WARPS * 32);
  wgmma::wait<0>();
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      wgmma::hold(part[j][e]);
  // The stage is free for every block that writes to it.
  __syncwarp();
  if (CLUSTER == 1) {
    if (lane == 0) barrier::arrive(shared.empty + ring.stage * 8);
  } else if (lane < CLUSTER) {
    barrier::arrive_remote(shared.empty + ring.stage * 8, lane);
  }
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    sums[j][0] = fmaf(part[j][0], scale[j].x, sums[j][0]);
    sums[j][1] = fmaf(part[j][1], scale[j].y, sums[j][1]);
    sums[j][2] = fmaf(part[j][2], scale[j].x, sums[j][2]);
    sums[j][3] = fmaf(part[j][3], scale[j].y, sums[j][3]);
  }
}

__forceinline__ void multiply(const Fp8LinearArgs& args, const Work& work, const Shared& shared,
                              u32 rank, int warp, int lane) {
  float sums[TOKEN_BLOCKS][4], part[TOKEN_BLOCKS][4];
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      part[j][e] = 0.0f;
  // The first turn is warpgroup 0's; the last arrival of warpgroup 1 is never waited for.
  if (TAKE_TURNS && warp >= 4) ptx::arrive_threads(TURN, MATH_WARPS * 32);
  Ring ring;
  linear::Unit unit = work.unit(work.first, rank);
  linear::Strip strip = linear::strip_at(args, unit.strip, work.k_tiles);
  float scales = linear::tile_scales(strip, unit.k_begin, unit.k_end, lane);
  if (X_RESIDENT && !QUANTIZE) barrier::wait(shared.input_full, 0);
  for (int u = work.first; u < work.units; u += work.step) {
    // Scales come straight from memory, so they are asked for 32 tiles or one unit ahead.
    const linear::Unit next = u + work.step < work.units ? work.unit(u + work.step, rank) : unit;
    const linear::Strip next_strip = linear::strip_at(args, next.strip, work.k_tiles);
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[j][e] = 0.0f;
    for (int begin = unit.k_begin; begin < unit.k_end; begin += 32) {
      const linear::Chunk chunk(unit, begin);
      const float upcoming = begin + 32 < unit.k_end
                                 ? linear::tile_scales(strip, begin + 32, unit.k_end, lane)
                                 : linear::tile_scales(next_strip, next.k_begin, next.k_end, lane);
      int k = chunk.first;
#pragma unroll 1
      for (int i = 0; i < chunk.length; ++i, k = chunk.after(k)) {
        const float weight_scale = __shfl_sync(0xffffffffu, scales, k - begin);
        barrier::wait(shared.full + ring.stage * 8, ring.parity);
        multiply_tile(sums, part, shared, ring, X_RESIDENT ? k - unit.k_begin : ring.stage,
                      weight_scale, warp, lane);
        ring.advance();
      }
      scales = upcoming;
    }
    const int token = unit.token_tile * TOKENS;
    const int blocks = min(TOKEN_BLOCKS, (args.tokens - token + 7) / 8);
    const int tile = unit.strip * work.token_groups * CLUSTER + unit.token_tile;
    split_k::reduce<SPLIT_K>(sums, args.workspace, tile, blocks, unit.split, warp, lane,
                             [&](int j, const float(&sum)[4]) {
                               linear::store_fragment(strip, sum, token + j * 8, args.tokens,
                                                      warp * 16, lane);
                             });
    unit = next;
    strip = next_strip;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fp8_linear_sm90(const __grid_constant__ Fp8LinearArgs args) {
  extern __shared__ __align__(1024) u8 base[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Work work(args);
  const Shared shared(base, work.k_tiles);
  const u32 rank = CLUSTER == 1 ? 0 : barrier::cluster_rank();

  if (warp == WEIGHT_WARP) {
    if (lane == 0) {
#pragma unroll
      for (int stage = 0; stage < STAGES; ++stage) {
        barrier::init(shared.full + stage * 8, X_RESIDENT ? 1 : 2);
        barrier::init(shared.empty + stage * 8, MATH_WARPS * CLUSTER);
      }
      barrier::init(shared.input_full, 1);
      barrier::publish_init();
    }
    __syncwarp();
  }
  if (CLUSTER > 1) barrier::sync_cluster();

  if (warp >= MATH_WARPS) {
    if constexpr (MOVE_REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == WEIGHT_WARP) {
      // The others learn that the barriers are set up; this warp has no reason to wait for them.
      ptx::arrive_threads(READY, THREADS);
      if (lane == 0) stream_weights(args, work, shared, rank);
    } else {
      release_successor();
      ptx::sync_threads(READY, THREADS);
      wait_for_predecessor();
      if (!QUANTIZE && warp == INPUT_WARP) bring_input(args, work, shared, rank, lane);
    }
    __syncwarp();
  } else {
    if constexpr (MOVE_REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    ptx::sync_threads(READY, THREADS);
    wait_for_predecessor();
    if (QUANTIZE) {
      const linear::Unit unit = work.unit(work.first, rank);
      const int token = unit.token_tile * TOKENS;
      linear::quantize_input<TOKENS>(
          args.x + static_cast<i64>(token) * args.cols + unit.k_begin * FP8_TILE, args.cols,
          min(TOKENS, args.tokens - token), unit.k_end - unit.k_begin, shared.input_tiles,
          shared.input_scales, threadIdx.x, MATH_WARPS * 32);
      barrier::publish_to_async_proxy();
      ptx::sync_threads(QUANTIZED, MATH_WARPS * 32);
    }
    multiply(args, work, shared, rank, warp, lane);
  }
  // A block's shared memory must outlive the copies and arrivals that its sibling sends there.
  if (CLUSTER > 1) barrier::sync_cluster();
}

}  // namespace ingot::kernels
