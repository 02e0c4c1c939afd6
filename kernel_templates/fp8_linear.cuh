// y = actquant(x) * W^T by warp-level mma: weights e4m3 with a ue8m0 scale per 128 x 128 block,
// inputs e4m3 with a power-of-two scale per token and 128 columns, fp32 sums. The family for every
// card; fp8_linear_sm90 competes with it on Hopper.
// Launch contract (host twin: launch_shape in fp8_linear.space.hpp)
//   grid (blocks), all resident at once when SPLIT_K > 1   block (256)   cluster none
//   arch sm_80 and later; FP8_MMA: sm_89 and later, but not sm_90, where it is emulated
//   smem fp8_linear_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   with X_RESIDENT every unit of a block has the same split and token tile
//
// Operands are swapped: weight rows are M, tokens are N. A tile is 128 weight rows x 128 columns;
// a block walks over units (strip of 128 rows, token tile, split of K), warp w multiplies lines
// 16w .. 16w + 15 of every tile. The ring of tiles is filled by 16-byte asynchronous copies of all
// threads. Fragments are read as raw e4m3: four neighbouring bytes are one lane's share of a k-step
// of either kind of mma, for both operands alike, so the order of columns inside 16 does not
// matter.
//
// NaN or infinity in a token stays in that token's output: tokens are columns of the mma and meet
// nowhere. Columns of tokens past the end hold whatever was in shared memory; they are not stored.
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/fp8_linear.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/split_k.cuh"
#include "fp8_linear.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "fp8_linear.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 8 || TOKENS == 16 || TOKENS == 32 || TOKENS == 64,
              "TOKENS is a whole number of mma columns whose sums fit registers");
static_assert(X_RESIDENT || !QUANTIZE, "what is quantised here stays in shared memory");
static_assert(STAGES >= 2 && SPLIT_K >= 1, "a ring has two stages at least");

constexpr int THREADS = 256;
constexpr int TOKEN_BLOCKS = TOKENS / 8;
constexpr int X_TILE_BYTES = TOKENS * FP8_TILE;
using Work = linear::Schedule<TOKENS, SPLIT_K, 1>;

struct Shared {
  u32 weights, inputs, input_scale_address;
  u8* input_tiles;
  float* input_scales;

  __forceinline__ Shared(u8* base, int k_tiles) {
    // Split 0 is the longest.
    const int x_tiles = X_RESIDENT ? fp8_linear_split_begin(k_tiles, SPLIT_K, 1) : STAGES;
    input_tiles = base + STAGES * FP8_TILE_BYTES;
    input_scales = reinterpret_cast<float*>(input_tiles + x_tiles * X_TILE_BYTES);
    weights = ptx::shared_address(base);
    inputs = ptx::shared_address(input_tiles);
    input_scale_address = ptx::shared_address(input_scales);
  }
};

// A place in this block's sequence of tiles.
struct Cursor {
  int u, k, stage;
  int begin, left;  // chunk, and its tiles from here on
  linear::Unit unit;
  const fp8_e4m3* tiles;  // of the unit's strip

  __forceinline__ Cursor(const Fp8LinearArgs& args, const Work& work) : stage(0) {
    enter(args, work, work.first);
  }
  __forceinline__ bool done(const Work& work) const { return u >= work.units; }
  __forceinline__ const fp8_e4m3* weights() const {
    return tiles + static_cast<i64>(k) * FP8_TILE_BYTES;
  }
  __forceinline__ void advance(const Fp8LinearArgs& args, const Work& work) {
    if (++stage == STAGES) stage = 0;
    if (--left > 0)
      k = linear::Chunk(unit, begin).after(k);
    else if (begin + 32 < unit.k_end)
      enter_chunk(begin + 32);
    else
      enter(args, work, u + work.step);
  }

 private:
  __forceinline__ void enter(const Fp8LinearArgs& args, const Work& work, int index) {
    u = index;
    if (done(work)) return;
    unit = work.unit(u, 0);
    tiles = linear::strip_at(args, unit.strip, work.k_tiles).tiles;
    enter_chunk(unit.k_begin);
  }
  __forceinline__ void enter_chunk(int at) {
    const linear::Chunk chunk(unit, at);
    begin = at;
    left = chunk.length;
    k = chunk.first;
  }
};

__forceinline__ void copy_weights(const Shared& shared, const Cursor& at) {
  const u32 offset = threadIdx.x * 16;
#pragma unroll
  for (u32 i = 0; i < FP8_TILE_BYTES; i += THREADS * 16)
    ptx::copy16_async(shared.weights + at.stage * FP8_TILE_BYTES + i + offset,
                      at.weights() + i + offset);
}
// The quantised input of K tile `k` to place `to_tile`.
__forceinline__ void copy_input(const Fp8LinearArgs& args, const Shared& shared, int token_tile,
                                int k, int to_tile) {
  const int token = token_tile * TOKENS, rows = min(TOKENS, args.tokens - token);
  const i64 from = static_cast<i64>(k) * args.x_rows + token;
  for (int i = threadIdx.x; i < rows * (FP8_TILE / 16); i += THREADS)
    ptx::copy16_async(shared.inputs + to_tile * X_TILE_BYTES + i * 16,
                      args.xq + from * FP8_TILE + i * 16);
  if (threadIdx.x < (rows + 3) / 4)
    ptx::copy16_async(shared.input_scale_address + (to_tile * TOKENS + threadIdx.x * 4) * 4,
                      args.x_scale + from + threadIdx.x * 4);
}

// sums += one tile: this warp's 16 weight lines x TOKENS, 128 columns.
__forceinline__ void multiply_tile(float (&sums)[TOKEN_BLOCKS][4], const Shared& shared, int stage,
                                   int x_tile, float weight_scale, int warp, int lane) {
  constexpr int CHUNKS = FP8_TILE / 16, HALF = CHUNKS / 2;
  float part[TOKEN_BLOCKS][4];
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      part[j][e] = 0.0f;
  // ldmatrix: a lane's row within 8 is lane % 8, which is also its line's swizzle.
  const u32 a_line = shared.weights + stage * FP8_TILE_BYTES + (warp * 16 + lane % 16) * FP8_TILE;
  const u32 b_line = shared.inputs + x_tile * X_TILE_BYTES + lane % 8 * FP8_TILE;
#pragma unroll
  for (int half = 0; half < CHUNKS; half += HALF) {
    u32 a[HALF / 2][4];  // two chunks: lines 0-7 and 8-15 of one, then of the next
#pragma unroll
    for (int i = 0; i < HALF / 2; ++i)
      ptx::load_matrices(a[i], a_line + (((half + i * 2 + lane / 16) ^ (lane % 8)) * 16));
    u32 a16[FP8_MMA ? 1 : HALF][4];
    if constexpr (!FP8_MMA) {
#pragma unroll
      for (int i = 0; i < HALF; ++i) {
        const u32 upper = a[i / 2][i % 2 * 2], lower = a[i / 2][i % 2 * 2 + 1];
        a16[i][0] = fp8::to_f16(upper);
        a16[i][1] = fp8::to_f16(lower);
        a16[i][2] = fp8::high_to_f16(upper);
        a16[i][3] = fp8::high_to_f16(lower);
      }
    }
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j) {
      u32 b[HALF];
      ptx::load_matrices(b, b_line + j * 8 * FP8_TILE + (((half + lane / 8) ^ (lane % 8)) * 16));
      if constexpr (FP8_MMA) {
#pragma unroll
        for (int i = 0; i < HALF / 2; ++i)
          mma::e4m3(part[j], a[i][0], a[i][1], a[i][2], a[i][3], b[i * 2], b[i * 2 + 1]);
      } else {
#pragma unroll
        for (int i = 0; i < HALF; ++i)
          mma::f16(part[j], a16[i][0], a16[i][1], a16[i][2], a16[i][3], fp8::to_f16(b[i]),
                   fp8::high_to_f16(b[i]));
      }
    }
  }
  const float factor = FP8_MMA ? weight_scale : weight_scale * (fp8::kF16Factor * fp8::kF16Factor);
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    const float2 scale = *reinterpret_cast<const float2*>(shared.input_scales + x_tile * TOKENS +
                                                          j * 8 + lane % 4 * 2);
    const float even = scale.x * factor, odd = scale.y * factor;
    sums[j][0] = fmaf(part[j][0], even, sums[j][0]);
    sums[j][1] = fmaf(part[j][1], odd, sums[j][1]);
    sums[j][2] = fmaf(part[j][2], even, sums[j][2]);
    sums[j][3] = fmaf(part[j][3], odd, sums[j][3]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fp8_linear(const __grid_constant__ Fp8LinearArgs args) {
  extern __shared__ __align__(128) u8 base[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Work work(args);
  const Shared shared(base, work.k_tiles);

  // STAGES - 1 tiles are in flight, one group of copies each; an empty group past the end keeps
  // the count. The first weights do not wait for the predecessor: they depend on nothing.
  Cursor ahead(args, work);
  const Cursor first = ahead;
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) {
    if (!ahead.done(work)) {
      copy_weights(shared, ahead);
      ahead.advance(args, work);
    }
    if (X_RESIDENT) ptx::commit_copies();
  }
  release_successor();
  wait_for_predecessor();
  if constexpr (QUANTIZE) {
    const int token = first.unit.token_tile * TOKENS;
    linear::quantize_input<TOKENS>(
        args.x + static_cast<i64>(token) * args.cols + first.unit.k_begin * FP8_TILE, args.cols,
        min(TOKENS, args.tokens - token), first.unit.k_end - first.unit.k_begin, shared.input_tiles,
        shared.input_scales, threadIdx.x, THREADS);
  } else if constexpr (X_RESIDENT) {
    for (int k = first.unit.k_begin; k < first.unit.k_end; ++k)
      copy_input(args, shared, first.unit.token_tile, k, k - first.unit.k_begin);
    ptx::commit_copies();
    ptx::wait_copies<0>();
  } else {
    Cursor at = first;
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
      if (!at.done(work)) {
        copy_input(args, shared, at.unit.token_tile, at.k, at.stage);
        at.advance(args, work);
      }
      ptx::commit_copies();  // the first of these groups holds all the weights above
    }
  }

  int stage = 0;
  linear::Unit unit = first.unit;
  linear::Strip strip = linear::strip_at(args, unit.strip, work.k_tiles);
  float scales = linear::tile_scales(strip, unit.k_begin, unit.k_end, lane);
  for (int u = work.first; u < work.units; u += work.step) {
    // Scales come straight from memory, so they are asked for 32 tiles or one unit ahead.
    const linear::Unit next = u + work.step < work.units ? work.unit(u + work.step, 0) : unit;
    const linear::Strip next_strip = linear::strip_at(args, next.strip, work.k_tiles);
    float sums[TOKEN_BLOCKS][4];
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
        ptx::wait_copies<STAGES - 2>();
        __syncthreads();  // this tile has landed for all; the tile before it is free
        if (!ahead.done(work)) {
          copy_weights(shared, ahead);
          if (!X_RESIDENT) copy_input(args, shared, ahead.unit.token_tile, ahead.k, ahead.stage);
          ahead.advance(args, work);
        }
        ptx::commit_copies();
        multiply_tile(sums, shared, stage, X_RESIDENT ? k - unit.k_begin : stage,
                      __shfl_sync(0xffffffffu, scales, k - begin), warp, lane);
        if (++stage == STAGES) stage = 0;
      }
      scales = upcoming;
    }
    const int token = unit.token_tile * TOKENS;
    const int blocks = min(TOKEN_BLOCKS, (args.tokens - token + 7) / 8);
    const int tile = unit.strip * work.token_groups + unit.token_tile;
    split_k::reduce<SPLIT_K>(sums, args.workspace, tile, blocks, unit.split, warp, lane,
                             [&](int j, const float(&sum)[4]) {
                               linear::store_fragment(strip, sum, token + j * 8, args.tokens,
                                                      warp * 16, lane);
                             });
    unit = next;
    strip = next_strip;
  }
}

}  // namespace ingot::kernels
