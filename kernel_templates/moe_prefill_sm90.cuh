// Routed experts of many tokens on Hopper's FP8 tensor cores, one product of the two a launch: gate
// and up with clamp, SwiGLU, weight and quantisation behind them, or down.
// Launch contract (host twin: launch_shape in moe_prefill_sm90.space.hpp)
//   grid (blocks that share the tiles)   block (640)   cluster none   arch sm_90a
//   smem moe_prefill_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   before: expert_order and expert_gather, or gate/up
//
// Weight rows are the M of the mma, tokens of one expert its N. A tile is 256 weight rows (8 jobs
// of moe_weight_tiles side by side; of gate/up that is one group of 128 activations) and up to
// TOKENS tokens. Blocks deal the tiles out in the order of experts; token tiles of one expert that
// share weights are neighbours, so weights come from memory once.
//
// Warps 0-15 multiply: each of four warpgroups has 64 rows, a warp 16, half a job. A warp makes
// e4m3 of its fp4 codes in registers (common/moe_job_e4m3.cuh); its warpgroup multiplies them and
// adds. Four warpgroups take turns by themselves: one's products hide what the others do. Warp 16
// streams weights and inputs, 128 columns a stage; warp 17 looks through a stage's weight scales
// before anybody multiplies it: how far each is below its row's reference, and which warpgroups
// have one that is too far. Their warpgroup gives its registers away.
//
// The tensor core's own accumulation keeps about 14 bits, so the sums of 128 columns are added to
// fp32 registers. Inputs of gate and up have one scale per token, which is applied to the last sum;
// those of down have one per 128 columns, which comes in where sums are added. Every sum has a
// fixed order: two launches give the same bits, and so does a token in other company.
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

constexpr int THREADS = MOE_PREFILL_SM90_THREADS, MATH_WARPS = 16, COPY_WARP = 16;
constexpr int SCALE_WARP = 17;
constexpr int HALVES = 1;  // of the 32 rows of a job, that a warp has
constexpr int K_TILES = (DOWN ? INTER : HIDDEN) / 128;
constexpr int ROW_TILES = DOWN ? HIDDEN / MOE_PREFILL_ROWS : INTER / 128;
constexpr int MATH_MEETS = 1;       // named barrier
constexpr bool ROW_SCALES = !DOWN;  // an input row has one scale, else one per 128 columns
constexpr bool BULK_COPY = true;

}  // namespace ingot::kernels

#include "common/moe_finish.cuh"
#include "common/moe_tiles.cuh"

namespace ingot::kernels {

static_assert(HIDDEN % MOE_PREFILL_ROWS == 0 && INTER % 128 == 0, "whole tiles");
static_assert(TOKENS <= 112 && TOKENS % 16 == 0, "N of the mma; sums are in registers");
static_assert(EXPERTS % 32 == 0 && EXPERTS <= 384, "a thread has an expert");

constexpr int JOBS = MOE_PREFILL_JOBS, JOB_BYTES = 2176, JOB_CODE_BYTES = 2048;
using moe::Plan;
using moe::Tile;

// Offsets in shared memory; each of the first is a ring of STAGES.
constexpr int X_BYTES = TOKENS * 128, WEIGHT_BYTES = MOE_PREFILL_WEIGHT_BYTES;
constexpr int WEIGHTS = STAGES * X_BYTES;
constexpr int X_SCALES = WEIGHTS + STAGES * WEIGHT_BYTES;
constexpr int OUTPUTS = X_SCALES + STAGES * TOKENS * 4;       // of gate/up: [TOKENS][128]
constexpr int LARGEST = OUTPUTS + (DOWN ? 0 : TOKENS * 128);  // [TOKENS], and inverse scales
constexpr int PLAN = LARGEST + (DOWN ? 0 : TOKENS * 8);
constexpr int BELOW = PLAN + moe_prefill_plan_bytes(EXPERTS, TOPK, TOKENS);  // [STAGES][ROWS]
constexpr int REFERENCES = BELOW + STAGES * MOE_PREFILL_ROWS * 4;            // [STAGES][ROWS] bytes
constexpr int FULL = REFERENCES + STAGES * MOE_PREFILL_ROWS;
constexpr int SEEN = FULL + STAGES * 8, EMPTY = SEEN + STAGES * 8;
static_assert(OUTPUTS % 16 == 0 && BELOW % 16 == 0, "bulk copies, words and barriers are aligned");
static_assert(EMPTY + STAGES * 8 ==
                  moe_prefill_sm90_smem_bytes(EXPERTS, TOPK, TOKENS, STAGES, DOWN),
              "host and device agree on the shared memory");

using Ring = RingPlace<STAGES>;

// ---- one warp: weights and inputs

__forceinline__ void stream(const MoePrefillArgs& args, const Plan& plan, u32 shared, int lane) {
  Ring ring;
  moe::for_each_tile(plan, [&](const Tile& tile, int) {
    const int rows = tile.padded_rows();
    const i64 job = (static_cast<i64>(tile.expert) * ROW_TILES + tile.strip) * JOBS + lane % JOBS;
    const u8* weights = args.weights + job * (K_TILES * JOB_BYTES);
    const u8* x = args.x + static_cast<i64>(tile.row) * 128;
    const float* scales = args.x_scale + tile.row;
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      const u32 full = shared + FULL + ring.stage * 8;
      const bool scaled = !ROW_SCALES || k == K_TILES - 1;
      barrier::wait(shared + EMPTY + ring.stage * 8, ring.parity ^ 1);
      if (lane == 0) barrier::arrive_expect(full, WEIGHT_BYTES + rows * (scaled ? 128 + 4 : 128));
      __syncwarp();
      if (lane < JOBS) {
        barrier::copy_bulk(shared + WEIGHTS + ring.stage * WEIGHT_BYTES + lane * JOB_BYTES, weights,
                           JOB_BYTES, full);
      } else if (lane == JOBS) {
        barrier::copy_bulk(shared + ring.stage * X_BYTES, x, rows * 128, full);
      } else if (lane == JOBS + 1 && scaled) {
        barrier::copy_bulk(shared + X_SCALES + ring.stage * (TOKENS * 4), scales, rows * 4, full);
      }
      weights += JOB_BYTES;
      x += static_cast<i64>(args.row_pitch) * 128;
      if (!ROW_SCALES) scales += args.row_pitch;
      ring.advance();
    }
  });
}

// ---- one warp: how weight scales lie

// In place of how far scales are below a row's reference: those of the warpgroup do not fit.
constexpr u32 TOO_WIDE = ~0u;

// A lane has eight rows of a job, eight lanes the 64 of a warpgroup.
__forceinline__ void look_at_scales(const Plan& plan, u8* base, u32 shared, int lane) {
  constexpr int ROWS = 8;
  Ring ring;
  moe::for_each_tile(plan, [&](const Tile&, int) {
    u32 from[ROWS];  // references, in each byte
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      barrier::wait(shared + FULL + ring.stage * 8, ring.parity);
      const u8* const packed = base + WEIGHTS + ring.stage * WEIGHT_BYTES + lane / 4 * JOB_BYTES +
                               JOB_CODE_BYTES + lane % 4 * (ROWS * 4);
      const u32 row = static_cast<u32>(ring.stage * MOE_PREFILL_ROWS + lane * ROWS);
      bool fit = true;
#pragma unroll
      for (int first = 0; first < ROWS; first += 4) {  // of 32 registers four rows at a time
        const uint4 words = *reinterpret_cast<const uint4*>(packed + first * 4);
        u32 below[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const u32 bytes = moe::scale_bytes(below[i]);
          if (k == 0) from[first + i] = moe::in_each_byte(moe::reference_of(bytes));
          below[i] = moe::steps_below(from[first + i], bytes);
          fit = fit && moe::fit(below[i]);
        }
        ptx::store_shared(shared + BELOW + (row + first) * 4,
                          make_uint4(below[0], below[1], below[2], below[3]));
      }
      const auto pack = [](const u32* of) {
        return ptx::permute(ptx::permute(of[0], of[1], 0x0040), ptx::permute(of[2], of[3], 0x0040),
                            0x5410);
      };
      ptx::store_shared(shared + REFERENCES + row, make_uint2(pack(from), pack(from + 4)));
      const u32 wide = __ballot_sync(~0u, !fit);
      if ((wide >> lane / 8 * 8 & 0xffu) != 0) {
#pragma unroll
        for (int first = 0; first < ROWS; first += 4)
          ptx::store_shared(shared + BELOW + (row + first) * 4,
                            make_uint4(TOO_WIDE, TOO_WIDE, TOO_WIDE, TOO_WIDE));
      }
      __syncwarp();
      if (lane == 0) barrier::arrive(shared + SEEN + ring.stage * 8);
      ring.advance();
    }
  });
}

// ---- four warpgroups: products

__forceinline__ u32 thread_here() {
  return static_cast<u32>(ptx::thread_here());
}

// A product's N: the products of all of a wide tile do not fit beside the sums.
template <int N>
constexpr int PART = N > 64 ? N / 2 : N;

// A place in the ring and the parity of its round, a tile's number and its columns: in one
// register.
struct Place {
  static constexpr u32 COLUMNS = 16, TILE = COLUMNS * 128;
  u32 bits;

  __forceinline__ u32 at() const { return bits % COLUMNS; }  // of two rounds
  __forceinline__ u32 stage() const { return at() < STAGES ? at() : at() - STAGES; }
  __forceinline__ u32 parity() const { return at() < STAGES ? 0 : 1; }
  __forceinline__ u32 columns() const { return bits % TILE / COLUMNS; }
  __forceinline__ int tile() const { return static_cast<int>(bits / TILE); }
  __forceinline__ void advance() {
    bits += at() < 2 * STAGES - 1 ? COLUMNS + 1 : COLUMNS + 1 - 2 * STAGES;
  }
  __forceinline__ void advance_tile(u32 tiles) {
    bits += tiles * TILE - static_cast<u32>(K_TILES) * COLUMNS;
  }
};
static_assert(2 * STAGES <= Place::COLUMNS && K_TILES < 128, "room for both");

struct Multiplier {
  const MoePrefillArgs& args;
  u8* base;
  u32 shared;
  Place ring;

  template <int N>
  using Sums = float[N / 8][4];

  // Where a lane's codes lie in the first stage, and the scales of its rows g and g + 8.
  __forceinline__ static u32 codes_of(u32 thread) {
    return static_cast<u32>(WEIGHTS) + thread / 64 * JOB_BYTES + thread % 64 / 32 * 1024 +
           thread % 32 * 16;
  }
  __forceinline__ static u32 scales_of(u32 thread) {
    return static_cast<u32>(WEIGHTS + JOB_CODE_BYTES) + thread / 64 * JOB_BYTES +
           thread % 64 / 4 * 8;
  }

  __forceinline__ const Plan& plan() const {
    u32 place = PLAN;
    wgmma::hold(place);  // its address is not worth a register through the products
    return *reinterpret_cast<const Plan*>(base + place);
  }

  // Of rows g and g + 8: bytes of four groups.
  struct Scales {
    u32 upper, lower;
  };
  __forceinline__ Scales scales(u32 thread) const {
    const uint2 packed =
        *reinterpret_cast<const uint2*>(base + scales_of(thread) + ring.stage() * WEIGHT_BYTES);
    return {moe::scale_bytes(packed.x), moe::scale_bytes(packed.y)};
  }
  // How far they are below the rows' references, or TOO_WIDE.
  __forceinline__ Scales below(u32 thread) const {
    const uint2 steps = *reinterpret_cast<const uint2*>(
        base + BELOW + ring.stage() * (MOE_PREFILL_ROWS * 4) + thread / 4 * 8);
    return {steps.x, steps.y};
  }
  __forceinline__ Scales references(u32 thread) const {
    const u8* const from = base + REFERENCES + ring.stage() * MOE_PREFILL_ROWS + thread / 4 * 2;
    return {from[0], from[1]};
  }

  template <int GROUP>
  __forceinline__ static void convert(u32* to, u32 upper, u32 lower, const Scales& below) {
    const uint2 above = moe::table_of<GROUP>(below.upper),
                under = moe::table_of<GROUP>(below.lower);
    moe::codes_to_e4m3(upper, above.x, above.y, to[0], to[2]);
    moe::codes_to_e4m3(lower, under.x, under.y, to[1], to[3]);
  }
  // This lane's codes of a stage: rows g and g + 8, of 64 columns each.
  struct Codes {
    uint4 first, second;
  };
  __forceinline__ Codes codes(u32 thread) const {
    const uint4* const from =
        reinterpret_cast<const uint4*>(base + codes_of(thread) + ring.stage() * WEIGHT_BYTES);
    return {from[0], from[32]};
  }
  // 16 rows x 128 columns as fragments of four k-steps.
  __forceinline__ static void convert(u32 (&a)[16], const Codes& codes, const Scales& below) {
    convert<0>(a, codes.first.x, codes.first.y, below);
    convert<1>(a + 4, codes.first.z, codes.first.w, below);
    convert<2>(a + 8, codes.second.x, codes.second.y, below);
    convert<3>(a + 12, codes.second.z, codes.second.w, below);
  }

  template <int N>
  __forceinline__ static void hold(Sums<N>& part) {
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        wgmma::hold(part[j][e]);
  }
  // Where a stage's inputs lie, by a shuffle: so the compiler knows it to be one for the warp, and
  // makes descriptors of it without the vector pipes.
  __forceinline__ u32 input_place() const {
    return __shfl_sync(~0u, wgmma::tile_place(shared + ring.stage() * X_BYTES), 0);
  }
  // part = a * inputs, of as many k-steps as `a` has.
  // @param place  of tokens and columns to begin with
  template <int N, int STEPS>
  __forceinline__ static void products(Sums<N>& part, u32 (&a)[4 * STEPS], u32 place) {
    hold<N>(part);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
      wgmma::mma_e4m3_registers<N>(part, a + 4 * i,
                                   wgmma::tile_descriptor(place + i * wgmma::kStep32), i > 0);
    wgmma::commit();
    wgmma::wait<0>();
    hold<N>(part);
    wgmma::hold_operand(a);
  }
  // The scales of the inputs of tokens 8j + 2c and 8j + 2c + 1.
  __forceinline__ float2 input_scales(u32 thread, int j) const {
    return *reinterpret_cast<const float2*>(base + X_SCALES + ring.stage() * (TOKENS * 4) +
                                            thread % 4 * 8 + j * 32);
  }

  template <int N>
  __forceinline__ void multiply(u32 thread, Sums<N>& sums, u32 (&a)[16]) const {
    constexpr int WIDTH = PART<N>;
    const u32 inputs = input_place();
#pragma unroll
    for (int from = 0; from < N / 8; from += WIDTH / 8) {
      Sums<WIDTH> part;
      fresh<WIDTH>(part);
      products<WIDTH, 4>(part, a, inputs + from * (1024 >> 4));
#pragma unroll
      for (int j = 0; j < WIDTH / 8; ++j) {
        float(&sum)[4] = sums[from + j];
        if constexpr (ROW_SCALES) {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sum[e] += part[j][e];
        } else {
          const float2 scale = input_scales(thread, from + j);
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sum[e] = fmaf(part[j][e], e % 2 == 0 ? scale.x : scale.y, sum[e]);
        }
      }
    }
  }
  // Where a row's scales lie too far apart for e4m3: 32 columns at a time, scaled as fp32 numbers.
  template <int N>
  __forceinline__ void multiply_wide(u32 thread, Sums<N>& sums) const {
    constexpr int WIDTH = PART<N>;
    const u32 inputs = input_place();
    const Scales bytes = scales(thread), of = references(thread);
#pragma unroll 1
    for (int group = 0; group < 4; ++group) {
      const float upper = moe::factor_of(static_cast<int>(of.upper), bytes.upper, group);
      const float lower = moe::factor_of(static_cast<int>(of.lower), bytes.lower, group);
      const uint2 words = *reinterpret_cast<const uint2*>(
          base + codes_of(thread) + ring.stage() * WEIGHT_BYTES + group / 2 * 512 + group % 2 * 8);
      u32 a[4];
      moe::codes_to_e4m3(words.x, moe::MAGNITUDES, moe::MAGNITUDES_HIGH, a[0], a[2]);
      moe::codes_to_e4m3(words.y, moe::MAGNITUDES, moe::MAGNITUDES_HIGH, a[1], a[3]);
#pragma unroll
      for (int from = 0; from < N / 8; from += WIDTH / 8) {
        Sums<WIDTH> part;
        fresh<WIDTH>(part);
        products<WIDTH, 1>(part, a, inputs + from * (1024 >> 4) + group * wgmma::kStep32);
#pragma unroll
        for (int j = 0; j < WIDTH / 8; ++j) {
          const float2 scale = ROW_SCALES ? float2{1.0f, 1.0f} : input_scales(thread, from + j);
          float(&sum)[4] = sums[from + j];
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sum[e] =
                fmaf(part[j][e] * (e < 2 ? upper : lower), e % 2 == 0 ? scale.x : scale.y, sum[e]);
        }
      }
    }
  }

  // Sums of all columns take the scales of their rows.
  template <int N>
  __forceinline__ void scale(u32 thread, Sums<N>& sums) const {
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const float2 scale = input_scales(thread, j);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[j][e] *= e % 2 == 0 ? scale.x : scale.y;
    }
  }
  __forceinline__ void leave_stage() {
    __syncwarp();
    if (thread_here() % 32 == 0) barrier::arrive(shared + EMPTY + ring.stage() * 8);
    ring.advance();
  }
  template <int N>
  __forceinline__ void tile_of() {
    Sums<N> sums[1];
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[0][j][e] = 0.0f;
#pragma unroll 1
    while (true) {
      barrier::wait(shared + SEEN + ring.stage() * 8, ring.parity());
      const u32 thread = thread_here();
      const Codes words = codes(thread);
      const Scales steps = below(thread);
      // All of the warpgroup takes one way.
      if (steps.upper != TOO_WIDE) {
        u32 a[16];
        convert(a, words, steps);
        multiply<N>(thread, sums[0], a);
      } else {
        multiply_wide<N>(thread, sums[0]);
      }
      wgmma::hold(ring.bits);  // what follows from it is not worth a register through the products
      if (ring.columns() == K_TILES - 1) break;
      leave_stage();
    }
    const u32 thread = thread_here();
    const Scales of = references(thread);
    if constexpr (ROW_SCALES) scale<N>(thread, sums[0]);
    leave_stage();
    const Tile tile(plan(), ring.tile());
    const moe::References references{{moe::reference_value(static_cast<int>(of.upper))},
                                     {moe::reference_value(static_cast<int>(of.lower))}};
    if constexpr (DOWN)
      moe::finish_down<N>(args, tile, sums, references);
    else
      moe::finish_gate_up<N>(args, base + OUTPUTS, reinterpret_cast<u32*>(base + LARGEST), tile,
                             sums, references);
  }
  // The narrowest mma that holds the tile's tokens.
  template <int N>
  __forceinline__ void choose(int rows) {
    if constexpr (N > 16) {
      if (rows <= N - 16) {
        choose<N - 16>(rows);
        return;
      }
    }
    tile_of<N>();
  }

 private:
  // Registers that the first mma overwrites.
  template <int N>
  __forceinline__ static void fresh(Sums<N>& part) {
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        wgmma::fresh(part[j][e]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    moe_prefill_sm90(const __grid_constant__ MoePrefillArgs args) {
  u8* const base = ptx::dynamic_shared_memory();
  const u32 shared = ptx::shared_address(base);
  const int thread = static_cast<int>(threadIdx.x);
  Plan& plan = *reinterpret_cast<Plan*>(base + PLAN);
  if (thread == 0) {
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier::init(shared + FULL + stage * 8, 1);
      barrier::init(shared + SEEN + stage * 8, 1);
      barrier::init(shared + EMPTY + stage * 8, MATH_WARPS);
    }
    barrier::publish_init();
  }
  if (!DOWN && thread < TOKENS) reinterpret_cast<u32*>(base + LARGEST)[thread] = 0;
  release_successor();
  wait_for_predecessor();
  moe::make_plan(plan, args.first, args.count, thread);
  if (thread >= MATH_WARPS * 32) {
    ptx::give_registers<32>();
    const int own = ptx::thread_here();
    if (own / 32 == COPY_WARP) stream(args, plan, shared, own % 32);
    if (own / 32 == SCALE_WARP) look_at_scales(plan, base, shared, own % 32);
  } else {
    ptx::take_registers<112>();
    Multiplier math{args, base, shared, {blockIdx.x * Place::TILE}};
    for (; math.ring.tile() < math.plan().tiles * ROW_TILES; math.ring.advance_tile(gridDim.x))
      math.choose<TOKENS>(Tile(math.plan(), math.ring.tile()).rows);
    if (!DOWN) barrier::wait_stores();
  }
}

}  // namespace ingot::kernels
