// y = actquant(x) * W^T by warp-level mma: weights e4m3 with a ue8m0 scale per 128 x 128 block,
// inputs e4m3 with a power-of-two scale per token and 128 columns, fp32 sums. The family for every
// card; fp8_linear_sm90 competes with it on Hopper.
// Launch contract (host twin: launch_shape in fp8_linear.space.hpp)
//   grid (SPLIT_K, token tiles, blocks that share the strips)
//     all resident at once when SPLIT_K > 1
//   block (256)   cluster none   smem fp8_linear_smem_bytes(...), dynamic
//   arch sm_80 and later; FP8_MMA: sm_89 and later, but not sm_90, where it is emulated
//   programmatic dependent launch: yes
//
// Operands are swapped: weight rows are M, tokens are N. A tile is 128 weight rows x 128 columns;
// a block keeps its token tile and its split of K and walks over strips of 128 rows; warp w
// multiplies lines 16w .. 16w + 15 of every tile. The ring of tiles is filled by 16-byte
// asynchronous copies of all threads. Fragments are read as raw e4m3: four neighbouring bytes are
// one lane's share of a k-step of either kind of mma, for both operands alike, so the order of
// columns inside 16 does not matter.
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
using Work = linear::Work<COLS, TOKENS, SPLIT_K>;

// Offsets in shared memory.
constexpr int X_TILES = X_RESIDENT ? Work::MOST_TILES : STAGES;
constexpr int INPUTS = STAGES * FP8_TILE_BYTES;
constexpr int INPUT_SCALES = INPUTS + X_TILES * X_TILE_BYTES;
static_assert(INPUT_SCALES + X_TILES * TOKENS * 4 ==
                  fp8_linear_smem_bytes(TOKENS, STAGES, X_RESIDENT ? X_TILES : 0),
              "host and device agree on the shared memory");

// A place in this block's sequence of tiles.
struct Cursor {
  int strip, k, done, stage;  // k: K tile from k_begin; done: of the strip, before this one

  __forceinline__ explicit Cursor(const Work& work)
      : strip(work.first_strip),
        k(linear::first_tile(work.first_strip, work.tiles)),
        done(0),
        stage(0) {}
  __forceinline__ bool past_end(const Work& work) const { return strip >= work.strips; }
  __forceinline__ int x_tile() const { return X_RESIDENT ? k : stage; }
  __forceinline__ void advance(const Work& work) {
    if (++stage == STAGES) stage = 0;
    if (++done == work.tiles) {
      done = 0;
      strip += work.step;
      k = linear::first_tile(strip, work.tiles);
    } else {
      k = linear::next_tile(k, work.tiles);
    }
  }
};

__forceinline__ void copy_weights(const Fp8LinearArgs& args, const Work& work, u32 shared,
                                  const Cursor& at) {
  const fp8_e4m3* from = linear::strip_at<Work::K_TILES>(args, at.strip).tiles +
                         (work.k_begin + at.k) * FP8_TILE_BYTES;
  const u32 offset = threadIdx.x * 16;
#pragma unroll
  for (u32 i = 0; i < FP8_TILE_BYTES; i += THREADS * 16)
    ptx::copy16_async(shared + at.stage * FP8_TILE_BYTES + i + offset, from + i + offset);
}
// The quantised input of K tile `k` to place `to_tile`.
__forceinline__ void copy_input(const Fp8LinearArgs& args, const Work& work, u32 shared, int k,
                                int to_tile) {
  const i64 from = static_cast<i64>(work.k_begin + k) * args.x_rows + work.token;
  for (int i = threadIdx.x; i < work.rows * (FP8_TILE / 16); i += THREADS)
    ptx::copy16_async(shared + INPUTS + to_tile * X_TILE_BYTES + i * 16,
                      args.xq + from * FP8_TILE + i * 16);
  if (threadIdx.x < (work.rows + 3) / 4)
    ptx::copy16_async(shared + INPUT_SCALES + (to_tile * TOKENS + threadIdx.x * 4) * 4,
                      args.x_scale + from + threadIdx.x * 4);
}

// sums += one tile: this warp's 16 weight lines x TOKENS, 128 columns.
__forceinline__ void multiply_tile(float (&sums)[TOKEN_BLOCKS][4], u32 shared, int stage,
                                   int x_tile, float weight_scale, int warp, int lane) {
  constexpr int CHUNKS = FP8_TILE / 16, HALF = CHUNKS / 2;
  float part[TOKEN_BLOCKS][4];
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      part[j][e] = 0.0f;
  // ldmatrix: a lane's row within 8 is lane % 8, which is also its line's swizzle.
  const u32 a_line = shared + stage * FP8_TILE_BYTES + (warp * 16 + lane % 16) * FP8_TILE;
  const u32 b_line = shared + INPUTS + x_tile * X_TILE_BYTES + lane % 8 * FP8_TILE;
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
  const u32 scales = shared + INPUT_SCALES + x_tile * TOKENS * 4 + lane % 4 * 8;
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    const float2 scale = ptx::load_shared(scales + j * 32);
    const float even = scale.x * factor, odd = scale.y * factor;
    sums[j][0] = fmaf(part[j][0], even, sums[j][0]);
    sums[j][1] = fmaf(part[j][1], odd, sums[j][1]);
    sums[j][2] = fmaf(part[j][2], even, sums[j][2]);
    sums[j][3] = fmaf(part[j][3], odd, sums[j][3]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fp8_linear(const __grid_constant__ Fp8LinearArgs args) {
  u8* const base = ptx::dynamic_shared_memory();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Work work(args);
  const u32 shared = ptx::shared_address(base);

  // STAGES - 1 tiles are in flight, one group of copies each; an empty group past the end keeps
  // the count. The first weights do not wait for the predecessor: they depend on nothing.
  Cursor ahead(work), at(work);
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) {
    if (!ahead.past_end(work)) {
      copy_weights(args, work, shared, ahead);
      ahead.advance(work);
    }
    if (X_RESIDENT) ptx::commit_copies();
  }
  linear::Strip strip = linear::strip_at<Work::K_TILES>(args, work.first_strip);
  linear::TileScales<Work::MOST_TILES> scales;
  linear::TileScaleBytes<Work::MOST_TILES> upcoming;
  upcoming.load(strip.scale + work.k_begin, work.tiles, lane);
  release_successor();
  wait_for_predecessor();
  if constexpr (QUANTIZE) {
    linear::quantize_input<TOKENS>(
        args.x + static_cast<i64>(work.token) * COLS + work.k_begin * FP8_TILE, COLS, work.rows,
        work.tiles, base + INPUTS, reinterpret_cast<float*>(base + INPUT_SCALES), threadIdx.x,
        THREADS);
  } else if constexpr (X_RESIDENT) {
    for (int k = 0; k < work.tiles; ++k)
      copy_input(args, work, shared, k, k);
    ptx::commit_copies();
    ptx::wait_copies<0>();
  } else {
    Cursor input(work);
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
      if (!input.past_end(work)) {
        copy_input(args, work, shared, input.k, input.stage);
        input.advance(work);
      }
      ptx::commit_copies();  // the first of these groups holds all the weights above
    }
  }

  for (int index = work.first_strip; index < work.strips; index += work.step) {
    // The next strip's scales are asked for while this strip is multiplied.
    const linear::Strip next =
        linear::strip_at<Work::K_TILES>(args, min(index + work.step, work.strips - 1));
    scales.take(upcoming);
    upcoming.load(next.scale + work.k_begin, work.tiles, lane);
    float sums[TOKEN_BLOCKS][4];
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[j][e] = 0.0f;
#pragma unroll 1
    for (int tile = 0; tile < work.tiles; ++tile) {
      ptx::wait_copies<STAGES - 2>();
      __syncthreads();  // this tile has landed for all; the tile before it is free
      if (!ahead.past_end(work)) {
        copy_weights(args, work, shared, ahead);
        if (!X_RESIDENT) copy_input(args, work, shared, ahead.k, ahead.stage);
        ahead.advance(work);
      }
      ptx::commit_copies();
      multiply_tile(sums, shared, at.stage, at.x_tile(), scales.at(at.k), warp, lane);
      at.advance(work);
    }
    const auto store = [&](int block, const auto& owned, int stride) {
      linear::store_fragments(strip, owned, work.token + block * 8, stride, work.token + work.rows,
                              warp * 16, lane);
    };
    if constexpr (SPLIT_K == 1)
      store(0, sums, 1);
    else
      split_k::reduce<SPLIT_K, 1>(sums, args.workspace, index * gridDim.y + blockIdx.y,
                                  (work.rows + 7) / 8, work.split, warp, lane, store);
    strip = next;
  }
}

}  // namespace ingot::kernels
