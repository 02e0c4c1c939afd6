// Routed experts of many tokens by mma.sync, one product of the two a launch: gate and up with
// clamp, SwiGLU, weight and quantisation behind them, or down.
// Launch contract (host twin: launch_shape in moe_prefill.space.hpp)
//   grid (blocks that share the tiles)   block (288)   cluster none
//   arch sm_80 and later; E4M3 sm_89, BULK_COPY sm_90 and later
//   smem moe_prefill_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   before: expert_order and expert_gather, or gate/up
//
// Weight rows are the M of the mma, tokens of one expert its N. A tile is 256 weight rows (8 jobs
// of moe_weight_tiles side by side; of gate/up that is one group of 128 activations) and up to
// TOKENS tokens. Blocks deal the tiles out in the order of experts; token tiles of one expert that
// share weights are neighbours, so weights come from memory once. Warps 0-7 multiply, a job each;
// warp 8 streams weights and inputs, 128 columns a stage.
//
// Codes are exact in e4m3 and in f16; the sums of 32 columns take the row's scale as fp32 numbers,
// those of 64 the input's. Every sum has a fixed order: two launches give the same bits.
// NaN or infinity in a token stays in that token: tokens are columns of the mma. Columns past an
// expert's last row hold whatever was in memory; they are not stored, or in rows that no pair has.
#include "common/barrier.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/moe_job.cuh"
#include "common/ptx.cuh"
#include "common/ring.cuh"
#include "moe_prefill.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "moe_prefill.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int MATH_WARPS = 8, COPY_WARP = 8, THREADS = 288;
constexpr int K_TILES = (DOWN ? INTER : HIDDEN) / 128;
constexpr int ROW_TILES = DOWN ? HIDDEN / MOE_PREFILL_ROWS : INTER / 128;
constexpr int HALVES = 2;      // of the 32 rows of a job
constexpr int MATH_MEETS = 1;  // named barrier

}  // namespace ingot::kernels

#include "common/moe_finish.cuh"
#include "common/moe_tiles.cuh"

namespace ingot::kernels {

static_assert(HIDDEN % MOE_PREFILL_ROWS == 0 && INTER % 128 == 0, "whole tiles");
static_assert(TOKENS % 8 == 0 && TOKENS <= 64, "sums are in registers");
static_assert(EXPERTS % 32 == 0 && EXPERTS <= THREADS, "a thread has an expert");

constexpr int JOBS = MOE_PREFILL_JOBS;
constexpr float FACTOR = E4M3 ? 64.0f : moe::JOB_FACTOR;  // that products of codes lack
using moe::Plan;
using moe::Tile;

// Offsets in shared memory; each of the first is a ring of STAGES.
constexpr int X_BYTES = TOKENS * 128, WEIGHT_BYTES = MOE_PREFILL_WEIGHT_BYTES;
constexpr int WEIGHTS = STAGES * X_BYTES;
constexpr int X_SCALES = WEIGHTS + STAGES * WEIGHT_BYTES;
constexpr int OUTPUTS = X_SCALES + STAGES * TOKENS * 4;       // of gate/up: [TOKENS][128]
constexpr int LARGEST = OUTPUTS + (DOWN ? 0 : TOKENS * 128);  // [TOKENS], and inverse scales
constexpr int PLAN = LARGEST + (DOWN ? 0 : TOKENS * 8);
constexpr int FULL = PLAN + moe_prefill_plan_bytes(EXPERTS, TOPK, TOKENS);
constexpr int EMPTY = FULL + STAGES * 8;
static_assert(OUTPUTS % 16 == 0 && FULL % 8 == 0, "bulk copies and barriers are aligned");
static_assert(EMPTY + STAGES * 8 == moe_prefill_smem_bytes(EXPERTS, TOPK, TOKENS, STAGES, DOWN),
              "host and device agree on the shared memory");

using Ring = RingPlace<STAGES>;

// ---- one warp: weights and inputs

__forceinline__ void copy(u32 to, const void* from, int bytes, u32 full, int lane, int owner) {
  if constexpr (BULK_COPY) {
    if (lane == owner) barrier::copy_bulk(to, from, bytes, full);
  } else {
    for (int i = lane * 16; i < bytes; i += 512)
      ptx::copy16_async(to + i, static_cast<const u8*>(from) + i);
  }
}
__forceinline__ void stream(const MoePrefillArgs& args, const Plan& plan, u32 shared, int lane) {
  Ring ring;
  moe::for_each_tile(plan, [&](const Tile& tile, int) {
    const int rows = tile.padded_rows();
    const i64 first = (static_cast<i64>(tile.expert) * ROW_TILES + tile.strip) * JOBS;
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      const u32 full = shared + FULL + ring.stage * 8;
      barrier::wait(shared + EMPTY + ring.stage * 8, ring.parity ^ 1);
      if constexpr (BULK_COPY) {
        if (lane == 0) barrier::arrive_expect(full, WEIGHT_BYTES + rows * (128 + 4));
        __syncwarp();
      }
#pragma unroll
      for (int j = 0; j < JOBS; ++j)
        copy(shared + WEIGHTS + ring.stage * WEIGHT_BYTES + j * MOE_JOB_BYTES,
             args.weights + ((first + j) * K_TILES + k) * MOE_JOB_BYTES, MOE_JOB_BYTES, full, lane,
             j);
      const i64 row = static_cast<i64>(k) * args.row_pitch + tile.row;
      copy(shared + ring.stage * X_BYTES, args.x + row * 128, rows * 128, full, lane, JOBS);
      copy(shared + X_SCALES + ring.stage * (TOKENS * 4), args.x_scale + row, rows * 4, full, lane,
           JOBS + 1);
      if constexpr (!BULK_COPY) barrier::arrive_when_copied(full);
      ring.advance();
    }
  });
}

// ---- eight warps: products

// Eight codes of one word to two words of e4m3, times 2^-6 (a denormal for 0.5), bytes in the order
// of common/expert_rows.args.h.
__forceinline__ void codes_to_e4m3(u32 word, u32& first, u32& second) {
  first = (word & 0x80808080u) | ((word << 1) & 0x1c1c1c1cu);
  second = ((word << 7) & 0x80808080u) | ((word >> 2) & 0x1c1c1c1cu);
}

// 16 rows x 32 columns of weights as a fragment of the mma, rows g and g + 8.
struct Fragment {
  u32 a[E4M3 ? 4 : 8];

  __forceinline__ void convert(u32 upper, u32 lower) {
    if constexpr (E4M3) {
      codes_to_e4m3(upper, a[0], a[2]);
      codes_to_e4m3(lower, a[1], a[3]);
    } else {
      u32 pairs[2][4];
      moe::codes_to_f16(upper, pairs[0]);
      moe::codes_to_f16(lower, pairs[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[2 * i] = pairs[0][i];
        a[2 * i + 1] = pairs[1][i];
      }
    }
  }
};
// Eight tokens x 32 columns.
struct Inputs {
  u32 b[E4M3 ? 2 : 4];

  __forceinline__ void convert(u32 first, u32 second) {
    if constexpr (E4M3) {
      b[0] = first;
      b[1] = second;
    } else {
      constexpr u32 BACK = 0x2031;  // to the order of columns
      const u32 low = ptx::permute(first, 0, BACK), high = ptx::permute(second, 0, BACK);
      b[0] = fp8::to_f16(low);
      b[1] = fp8::high_to_f16(low);
      b[2] = fp8::to_f16(high);
      b[3] = fp8::high_to_f16(high);
    }
  }
};
__forceinline__ void multiply(float (&sums)[4], const Fragment& w, const Inputs& x) {
  if constexpr (E4M3) {
    mma::e4m3(sums, w.a[0], w.a[1], w.a[2], w.a[3], x.b[0], x.b[1]);
  } else {
    mma::f16(sums, w.a[0], w.a[1], w.a[2], w.a[3], x.b[0], x.b[1]);
    mma::f16(sums, w.a[4], w.a[5], w.a[6], w.a[7], x.b[2], x.b[3]);
  }
}

// Sums of half a stage: 32 rows x 64 columns of weights times the tile's tokens.
template <int HALF>
__forceinline__ void multiply_half(float (&sums)[2][TOKENS / 8][4], const u8* base, u32 shared,
                                   int stage, int rows, int warp, int lane) {
  Fragment weights[2][2];
  float upper[2][2], lower[2][2];  // of halves m and column groups
  const u8* const job = base + WEIGHTS + stage * WEIGHT_BYTES + warp * MOE_JOB_BYTES;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const uint4 codes = *reinterpret_cast<const uint4*>(job + m * 1024 + HALF * 512 + lane * 16);
    const uint2 scales =
        *reinterpret_cast<const uint2*>(job + MOE_JOB_CODE_BYTES + m * 64 + lane / 4 * 8);
    weights[m][0].convert(codes.x, codes.y);
    weights[m][1].convert(codes.z, codes.w);
    upper[m][0] = moe::scale_of<2 * HALF>(scales.x);
    upper[m][1] = moe::scale_of<2 * HALF + 1>(scales.x);
    lower[m][0] = moe::scale_of<2 * HALF>(scales.y);
    lower[m][1] = moe::scale_of<2 * HALF + 1>(scales.y);
  }
  const u8* const x_scales = base + X_SCALES + stage * (TOKENS * 4) + lane % 4 * 8;
  const u32 x = shared + stage * X_BYTES + lane % 8 * 128 + ((HALF * 4 + lane / 8) ^ lane % 8) * 16;
#pragma unroll
  for (int j = 0; j < TOKENS / 8; ++j) {
    if (8 * j >= rows) continue;
    u32 words[4];
    ptx::load_matrices(words, x + j * 1024);
    const float2 scale = *reinterpret_cast<const float2*>(x_scales + j * 32);
    float part[2][4];
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      Inputs inputs;
      inputs.convert(words[2 * group], words[2 * group + 1]);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply(products, weights[m][group], inputs);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float row = e < 2 ? upper[m][group] : lower[m][group];
          part[m][e] = group == 0 ? products[e] * row : fmaf(products[e], row, part[m][e]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[m][j][e] = fmaf(part[m][e], e % 2 == 0 ? scale.x : scale.y, sums[m][j][e]);
  }
}

__forceinline__ void multiply(const MoePrefillArgs& args, const Plan& plan, u8* base, u32 shared,
                              int warp, int lane) {
  Ring ring;
  const moe::References references{{FACTOR, FACTOR}, {FACTOR, FACTOR}};
  moe::for_each_tile(plan, [&](const Tile& tile, int) {
    float sums[2][TOKENS / 8][4];
#pragma unroll
    for (int j = 0; j < TOKENS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[0][j][e] = sums[1][j][e] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      barrier::wait(shared + FULL + ring.stage * 8, ring.parity);
      multiply_half<0>(sums, base, shared, ring.stage, tile.rows, warp, lane);
      multiply_half<1>(sums, base, shared, ring.stage, tile.rows, warp, lane);
      __syncwarp();
      if (lane == 0) barrier::arrive(shared + EMPTY + ring.stage * 8);
      ring.advance();
    }
    if constexpr (DOWN)
      moe::finish_down<TOKENS>(args, tile, sums, references);
    else
      moe::finish_gate_up<TOKENS>(args, base + OUTPUTS, reinterpret_cast<u32*>(base + LARGEST),
                                  tile, sums, references);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_prefill(const __grid_constant__ MoePrefillArgs args) {
  u8* const base = ptx::dynamic_shared_memory();
  const u32 shared = ptx::shared_address(base);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  Plan& plan = *reinterpret_cast<Plan*>(base + PLAN);
  if (thread == 0) {
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier::init(shared + FULL + stage * 8, BULK_COPY ? 1 : 32);
      barrier::init(shared + EMPTY + stage * 8, MATH_WARPS);
    }
    barrier::publish_init();
  }
  if (!DOWN && thread < TOKENS) reinterpret_cast<u32*>(base + LARGEST)[thread] = 0;
  release_successor();
  wait_for_predecessor();
  moe::make_plan(plan, args.first, args.count, thread);
  if (warp == COPY_WARP) {
    stream(args, plan, shared, lane);
  } else {
    multiply(args, plan, base, shared, warp, lane);
    if (BULK_COPY && !DOWN && thread == 0) barrier::wait_stores();
  }
}

}  // namespace ingot::kernels
