// Routed experts of many tokens on Hopper's FP8 tensor cores, one product of the two a launch: gate
// and up with clamp, SwiGLU, weight and quantisation behind them, or down.
// Launch contract (host twin: launch_shape in moe_prefill_sm90.space.hpp)
//   grid (blocks that share the tiles)   block (384)   arch sm_90a
//   cluster MULTICAST: (2, 1, 1), otherwise none
//   smem moe_prefill_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   before: expert_order and expert_gather, or gate/up
//
// Weight rows are the M of the mma, tokens of one expert its N. A tile is 256 weight rows (8 jobs
// of moe_weight_tiles side by side; of gate/up that is one group of 128 activations) and up to
// TOKENS tokens. Blocks deal the tiles out in the order of experts; token tiles of one expert that
// share weights are neighbours, so weights come from memory once.
//
// Warps 0-7 multiply: each of two warpgroups has 128 rows, a warp the 32 of a job, in two halves.
// Warp 8 streams weights and inputs, 128 columns a stage. Warps 9 and 10 look at the scales of what
// has come and make tables of them (common/moe_job_e4m3.cuh), one for each warpgroup. The fp4 codes
// become e4m3 in registers, of one half while the tensor core multiplies the other.
//
// The tensor core's own accumulation keeps about 14 bits, so the sums of 128 columns are added to
// fp32 registers, which is also where the inputs' scales come in. Every sum has a fixed order: two
// launches give the same bits, and so does a token in other company.
// NaN or infinity in a token stays in that token: tokens are columns of the mma. Columns past an
// expert's last row hold whatever was in memory; they are not stored, or in rows that no pair has.
#include "common/barrier.cuh"
#include "common/launch.cuh"
#include "common/moe_job_e4m3.cuh"
#include "common/ptx.cuh"
#include "common/ring.cuh"
#include "common/wgmma_registers.cuh"
#include "moe_prefill_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "moe_prefill_sm90.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int MATH_WARPS = 8, COPY_WARP = 8, SCALE_WARP = 9, THREADS = 384;
constexpr int K_TILES = (DOWN ? INTER : HIDDEN) / 128;
// A pair of blocks takes a tile together: each has one of two neighbouring strips of rows.
constexpr int PAIR = MULTICAST ? 2 : 1;
constexpr int ROW_TILES = (DOWN ? HIDDEN / MOE_PREFILL_ROWS : INTER / 128) / PAIR;
constexpr int MATH_MEETS = 1, TURN = 2;  // named barriers; TURN of each warpgroup
constexpr bool BULK_COPY = true;

}  // namespace ingot::kernels

#include "common/moe_finish.cuh"
#include "common/moe_tiles.cuh"

namespace ingot::kernels {

static_assert(HIDDEN % MOE_PREFILL_ROWS == 0 && INTER % 128 == 0, "whole tiles");
static_assert(TOKENS <= 128 && TOKENS % N_STEP == 0 && N_STEP % 16 == 0, "N of the mma");
static_assert(EXPERTS % 32 == 0 && EXPERTS <= 384, "a thread has an expert");
static_assert((DOWN ? HIDDEN / MOE_PREFILL_ROWS : INTER / 128) % PAIR == 0, "whole pairs");

constexpr int JOBS = MOE_PREFILL_JOBS, JOB_BYTES = 2176, JOB_CODE_BYTES = 2048;
// With more tokens there are no registers for fragments of both halves.
constexpr int MOST_N_AHEAD = 112;
using moe::Plan;
using moe::Tile;

// Offsets in shared memory; each of the first is a ring of STAGES.
constexpr int X_BYTES = TOKENS * 128, WEIGHT_BYTES = MOE_PREFILL_WEIGHT_BYTES;
constexpr int TABLE_BYTES = MOE_PREFILL_ROWS * 32;
constexpr int WEIGHTS = STAGES * X_BYTES;
constexpr int TABLES = WEIGHTS + STAGES * WEIGHT_BYTES;
constexpr int REFERENCES = TABLES + STAGES * TABLE_BYTES;
constexpr int X_SCALES = REFERENCES + STAGES * MOE_PREFILL_ROWS * 4;
constexpr int OUTPUTS = X_SCALES + STAGES * TOKENS * 4;       // of gate/up: [TOKENS][128]
constexpr int LARGEST = OUTPUTS + (DOWN ? 0 : TOKENS * 128);  // [2][TOKENS]
constexpr int PLAN = LARGEST + (DOWN ? 0 : TOKENS * 8);
constexpr int FULL = PLAN + moe_prefill_plan_bytes(EXPERTS, TOPK, TOKENS);
constexpr int EMPTY = FULL + STAGES * 8, LOOKED_AT = EMPTY + STAGES * 8;  // of each warpgroup
constexpr int WIDE = LOOKED_AT + 2 * STAGES * 8;                          // [STAGES][2]
static_assert(OUTPUTS % 16 == 0 && FULL % 8 == 0, "bulk copies and barriers are aligned");
static_assert(WIDE + STAGES * 8 == moe_prefill_sm90_smem_bytes(EXPERTS, TOPK, TOKENS, STAGES, DOWN),
              "host and device agree on the shared memory");

using Ring = RingPlace<STAGES>;

// ---- one warp: weights and inputs

__forceinline__ void stream(const MoePrefillArgs& args, const Plan& plan, u32 shared, int lane) {
  Ring ring;
  const int rank = MULTICAST ? static_cast<int>(blockIdx.x % 2) : 0;
  const u64 policy = MULTICAST ? barrier::evict_first_policy() : 0;
  moe::for_each_tile(plan, [&](const Tile& tile, int) {
    const int rows = tile.padded_rows();
    // The pair's blocks read half of the rows each, for both.
    const int half = (rows / 8 + 1) / 2 * 8, begin = rank * half;
    const int own = MULTICAST ? (rank == 0 ? half : rows - half) : rows;
    const i64 job =
        (static_cast<i64>(tile.expert) * (ROW_TILES * PAIR) + tile.strip) * JOBS + lane % JOBS;
    const u8* weights = args.weights + job * (K_TILES * JOB_BYTES);
    const u8* x = args.x + static_cast<i64>(tile.row + begin) * 128;
    const float* scales = args.x_scale + tile.row;
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      const u32 full = shared + FULL + ring.stage * 8;
      barrier::wait(shared + EMPTY + ring.stage * 8, ring.parity ^ 1);
      if (lane == 0) barrier::arrive_expect(full, WEIGHT_BYTES + rows * (128 + 4));
      __syncwarp();
      if (lane < JOBS) {
        barrier::copy_bulk(shared + WEIGHTS + ring.stage * WEIGHT_BYTES + lane * JOB_BYTES, weights,
                           JOB_BYTES, full);
      } else if (lane == JOBS) {
        const u32 to = shared + ring.stage * X_BYTES + begin * 128;
        if constexpr (MULTICAST) {
          if (own > 0) barrier::copy_bulk_multicast(to, x, own * 128, full, 3, policy);
        } else {
          barrier::copy_bulk(to, x, own * 128, full);
        }
      } else if (lane == JOBS + 1) {
        barrier::copy_bulk(shared + X_SCALES + ring.stage * (TOKENS * 4), scales, rows * 4, full);
      }
      weights += JOB_BYTES;
      x += static_cast<i64>(args.row_pitch) * 128;
      scales += args.row_pitch;
      ring.advance();
    }
  });
}

// ---- a warp for each warpgroup: tables of scales. A lane has a row of each of four jobs.

// Where a row of a job has its table: 16 bytes for groups 0 and 1, and 512 bytes on for the others.
__forceinline__ u32 table_of(int stage, int job, int row) {
  return static_cast<u32>(TABLES + stage * TABLE_BYTES + job * 1024 + row * 16);
}
__forceinline__ void look_at_scales(const Plan& plan, u32 shared, u8* base, int group, int lane) {
  Ring ring;
  // The scales of a job lie as lanes take codes: rows g and g + 8 of 16 side by side.
  const int row = (lane & 16) + lane % 2 * 8 + (lane >> 1) % 8;
  moe::for_each_tile(plan, [&](const Tile&, int) {
    int references[4];
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      barrier::wait(shared + FULL + ring.stage * 8, ring.parity);
      const u32 scales = shared + WEIGHTS + ring.stage * WEIGHT_BYTES + group * (4 * JOB_BYTES) +
                         JOB_CODE_BYTES + lane * 4;
      u32 bytes[4], below[4];
      bool fit = true;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        bytes[j] = __float_as_uint(ptx::load_shared_float(scales + j * JOB_BYTES));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        bytes[j] = moe::scale_bytes(bytes[j]);
        if (k == 0) references[j] = moe::reference_of(bytes[j]);
        below[j] = moe::steps_below(references[j], bytes[j]);
        fit = fit && moe::fit(below[j]);
      }
      const bool wide = __any_sync(~0u, !fit);
      const u32 tables = shared + table_of(ring.stage, group * 4, row);
      if (!wide) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint2 a = moe::table_of<0>(below[j]), b = moe::table_of<1>(below[j]);
          ptx::store_shared(tables + j * 1024, uint4{a.x, a.y, b.x, b.y});
          const uint2 c = moe::table_of<2>(below[j]), d = moe::table_of<3>(below[j]);
          ptx::store_shared(tables + j * 1024 + 512, uint4{c.x, c.y, d.x, d.y});
        }
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const auto factor = [&](int g) {
            return __float_as_uint(moe::factor_of(references[j], bytes[j], g));
          };
          ptx::store_shared(tables + j * 1024, uint4{factor(0), factor(1), factor(2), factor(3)});
        }
      }
      if (k == K_TILES - 1) {
        float* const values = reinterpret_cast<float*>(
            base + REFERENCES + ring.stage * (MOE_PREFILL_ROWS * 4) + group * 512 + row * 4);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          values[j * 32] = moe::reference_value(references[j]);
      }
      if (lane == 0)
        *reinterpret_cast<u32*>(base + WIDE + ring.stage * 8 + group * 4) = wide ? 1u : 0u;
      __syncwarp();
      if (lane == 0) barrier::arrive(shared + LOOKED_AT + (group * STAGES + ring.stage) * 8);
      ring.advance();
    }
  });
}

// ---- two warpgroups: products

struct Multiplier {
  const MoePrefillArgs& args;
  const Plan& plan;
  u8* base;
  u32 shared;
  int warp, lane;  // warp: of eight, the job of a stage
  Ring ring;
  int turn = 0;  // of the two places for largest magnitudes

  template <int N>
  using Sums = float[N / 8][4];

  template <int N>
  __forceinline__ static void hold(Sums<N>& part) {
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        wgmma::hold(part[j][e]);
  }
  __forceinline__ u32 input_place() const {
    return wgmma::tile_place(shared + ring.stage * X_BYTES);
  }
  __forceinline__ const u8* job() const {
    return base + WEIGHTS + ring.stage * WEIGHT_BYTES + warp * JOB_BYTES;
  }
  __forceinline__ uint4 table(int row, int half) const {
    return *reinterpret_cast<const uint4*>(base + table_of(ring.stage, warp, row) + half * 512);
  }

  // 16 rows x 128 columns of this warp's job, those of half `m`, as fragments of four k-steps.
  __forceinline__ void convert(u32 (&a)[16], int m) const {
    const int row = m * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 codes =
          *reinterpret_cast<const uint4*>(job() + m * 1024 + half * 512 + lane * 16);
      const uint4 upper = table(row, half), lower = table(row + 8, half);
      u32* const to = a + half * 8;
      moe::codes_to_e4m3(codes.x, upper.x, upper.y, to[0], to[2]);
      moe::codes_to_e4m3(codes.y, lower.x, lower.y, to[1], to[3]);
      moe::codes_to_e4m3(codes.z, upper.z, upper.w, to[4], to[6]);
      moe::codes_to_e4m3(codes.w, lower.z, lower.w, to[5], to[7]);
    }
  }
  // Starts part = the products of 128 columns.
  template <int N>
  __forceinline__ void start(Sums<N>& part, const u32 (&a)[16]) const {
    const u32 place = input_place();
    if (TURNS != 0) ptx::sync_threads(TURN + warp / 4, MATH_WARPS * 32);
    hold<N>(part);
    wgmma::fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      wgmma::mma_e4m3_registers<N>(part, a + 4 * step,
                                   wgmma::tile_descriptor(place + step * wgmma::kStep32), step > 0);
    wgmma::commit();
    if (TURNS == 1) ptx::arrive_threads(TURN + (warp / 4 ^ 1), MATH_WARPS * 32);
  }
  template <int N>
  __forceinline__ void finish(Sums<N>& part, u32 (&a)[16]) const {
    wgmma::wait<0>();
    hold<N>(part);
    wgmma::hold_operand(a);
    if (TURNS == 2) ptx::arrive_threads(TURN + (warp / 4 ^ 1), MATH_WARPS * 32);
  }
  // sums += part times the inputs' scales, and times the rows'.
  template <int N>
  __forceinline__ void add(Sums<N>& sums, const Sums<N>& part) const {
    const u8* const scales = base + X_SCALES + ring.stage * (TOKENS * 4) + lane % 4 * 8;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const float2 scale = *reinterpret_cast<const float2*>(scales + j * 32);
      sums[j][0] = fmaf(part[j][0], scale.x, sums[j][0]);
      sums[j][1] = fmaf(part[j][1], scale.y, sums[j][1]);
      sums[j][2] = fmaf(part[j][2], scale.x, sums[j][2]);
      sums[j][3] = fmaf(part[j][3], scale.y, sums[j][3]);
    }
  }

  template <int N>
  __forceinline__ void multiply(Sums<N> (&sums)[2], Sums<N>& part) const {
    u32 a[16];
    convert(a, 0);
    start<N>(part, a);
    if constexpr (N <= MOST_N_AHEAD) {
      u32 next[16];
      convert(next, 1);
      finish<N>(part, a);
      add<N>(sums[0], part);
      start<N>(part, next);
      finish<N>(part, next);
    } else {
      finish<N>(part, a);
      convert(a, 1);
      add<N>(sums[0], part);
      start<N>(part, a);
      finish<N>(part, a);
    }
    add<N>(sums[1], part);
  }
  // Where a row's scales lie too far apart for e4m3: 32 columns at a time, scaled as fp32 numbers.
  template <int N>
  __forceinline__ void multiply_wide(Sums<N> (&sums)[2], Sums<N>& part) const {
    const int thread = ptx::thread_here(), lane = thread & 31, warp = thread >> 5;  // read here
    for (int turn = 0; TURNS != 0 && turn < 2; ++turn) {  // both of this stage's pass
      ptx::sync_threads(TURN + warp / 4, MATH_WARPS * 32);
      ptx::arrive_threads(TURN + (warp / 4 ^ 1), MATH_WARPS * 32);
    }
    const u8* const job = base + WEIGHTS + ring.stage * WEIGHT_BYTES + warp * JOB_BYTES;
    const u8* const scales = base + X_SCALES + ring.stage * (TOKENS * 4) + lane % 4 * 8;
#pragma unroll 1
    for (int group = 0; group < 4; ++group) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int row = m * 16 + lane / 4;
        const uint2 codes = *reinterpret_cast<const uint2*>(job + m * 1024 + group / 2 * 512 +
                                                            lane * 16 + group % 2 * 8);
        const float upper = *reinterpret_cast<const float*>(base + table_of(ring.stage, warp, row) +
                                                            group * 4),
                    lower = *reinterpret_cast<const float*>(
                        base + table_of(ring.stage, warp, row + 8) + group * 4);
        u32 a[4];
        moe::codes_to_e4m3(codes.x, moe::MAGNITUDES, moe::MAGNITUDES_HIGH, a[0], a[2]);
        moe::codes_to_e4m3(codes.y, moe::MAGNITUDES, moe::MAGNITUDES_HIGH, a[1], a[3]);
        hold<N>(part);
        wgmma::fence();
        wgmma::mma_e4m3_registers<N>(
            part, a, wgmma::tile_descriptor(input_place() + group * wgmma::kStep32), 0);
        wgmma::commit();
        wgmma::wait<0>();
        hold<N>(part);
        wgmma::hold_operand(a);
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
          const float2 scale = *reinterpret_cast<const float2*>(scales + j * 32);
          sums[m][j][0] = fmaf(part[j][0] * upper, scale.x, sums[m][j][0]);
          sums[m][j][1] = fmaf(part[j][1] * upper, scale.y, sums[m][j][1]);
          sums[m][j][2] = fmaf(part[j][2] * lower, scale.x, sums[m][j][2]);
          sums[m][j][3] = fmaf(part[j][3] * lower, scale.y, sums[m][j][3]);
        }
      }
    }
  }

  template <int N>
  __forceinline__ void tile_of(int index) {
    Sums<N> sums[2], part;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[0][j][e] = sums[1][j][e] = part[j][e] = 0.0f;
    moe::References references{};
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      barrier::wait(shared + FULL + ring.stage * 8, ring.parity);
      barrier::wait(shared + LOOKED_AT + (warp / 4 * STAGES + ring.stage) * 8, ring.parity);
      const u32 wide = *reinterpret_cast<const u32*>(base + WIDE + ring.stage * 8 + warp / 4 * 4);
      if (__shfl_sync(~0u, wide, 0) == 0)
        multiply<N>(sums, part);
      else
        multiply_wide<N>(sums, part);
      if (k == K_TILES - 1) {
        const int own = ptx::thread_here();
        const u8* const from = base + REFERENCES + ring.stage * (MOE_PREFILL_ROWS * 4) +
                               (own >> 5) * 128 + (own & 31) / 4 * 4;
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          references.upper[m] = *reinterpret_cast<const float*>(from + m * 64);
          references.lower[m] = *reinterpret_cast<const float*>(from + m * 64 + 32);
        }
      }
      __syncwarp();
      const int own = ptx::thread_here() & 31;
      if constexpr (MULTICAST) {
        if (own < 2) barrier::arrive_remote(shared + EMPTY + ring.stage * 8, own);
      } else {
        if (own == 0) barrier::arrive(shared + EMPTY + ring.stage * 8);
      }
      ring.advance();
    }
    const Tile tile(plan, index);  // again: it would take registers through the products
    if constexpr (DOWN)
      moe::finish_down<N>(args, tile, sums, references);
    else
      moe::finish_gate_up<N>(args, base + OUTPUTS, reinterpret_cast<u32*>(base + LARGEST), turn,
                             tile, sums, references);
    turn ^= 1;
  }
  // The narrowest mma that holds the tile's tokens.
  template <int N>
  __forceinline__ void choose(int index, int rows) {
    if constexpr (N > N_STEP) {
      if (rows <= N - N_STEP) {
        choose<N - N_STEP>(index, rows);
        return;
      }
    }
    tile_of<N>(index);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_prefill_sm90(const __grid_constant__ MoePrefillArgs args) {
  u8* const base = ptx::dynamic_shared_memory();
  const u32 shared = ptx::shared_address(base);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = static_cast<int>(threadIdx.x / 32);
  Plan& plan = *reinterpret_cast<Plan*>(base + PLAN);
  if (thread == 0) {
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier::init(shared + FULL + stage * 8, 1);
      barrier::init(shared + EMPTY + stage * 8, MATH_WARPS * PAIR);
      barrier::init(shared + LOOKED_AT + stage * 8, 1);
      barrier::init(shared + LOOKED_AT + (STAGES + stage) * 8, 1);
    }
    barrier::publish_init();
  }
  if (!DOWN && thread < TOKENS) reinterpret_cast<u32*>(base + LARGEST)[thread] = 0;
  release_successor();
  wait_for_predecessor();
  moe::make_plan(plan, args.first, args.count, thread);
  if constexpr (MULTICAST) {  // the sibling's barriers are set up
    barrier::arrive_cluster();
    barrier::wait_cluster();
  }

  // Each role reads its thread's number again: kept across the split it would be spilled.
  if (warp >= MATH_WARPS) {
    ptx::give_registers<56>();
    const int lane = ptx::thread_here() & 31;
    if (warp == COPY_WARP)
      stream(args, plan, shared, lane);
    else if (warp < SCALE_WARP + 2)
      look_at_scales(plan, shared, base, warp - SCALE_WARP, lane);
  } else {
    ptx::take_registers<224>();
    const int own = ptx::thread_here();
    // The first turn is the first warpgroup's.
    if (TURNS != 0 && own >= 128) ptx::arrive_threads(TURN, MATH_WARPS * 32);
    Multiplier math{args, plan, base, shared, own >> 5, own & 31, {}};
    moe::for_each_tile(plan, [&](const Tile& tile, int i) { math.choose<TOKENS>(i, tile.rows); });
    if (!DOWN && own == 0) barrier::wait_stores();
  }
  if constexpr (MULTICAST) {  // the sibling still arrives at this block's barriers
    __syncwarp();
    barrier::arrive_cluster();
    barrier::wait_cluster();
  }
}

}  // namespace ingot::kernels
