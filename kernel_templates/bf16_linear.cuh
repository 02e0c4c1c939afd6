// y = x * W^T for bf16 inputs and bf16 weights, fp32 sums, fp32 or bf16 out: the compressors, the
// indexer's head weights, the router's logits, the head. Source: model specification sections 3.9
// to 3.12. Launch contract (host twin: launch_shape in bf16_linear.space.hpp)
//   grid (SPLIT_K, token tiles, blocks that share the strips)
//     all resident at once when SPLIT_K > 1, unless LAST_SUMS
//   block (256)   cluster none   smem bf16_linear_smem_bytes(...), dynamic   arch sm_80 and later
//   programmatic dependent launch: yes
//
// Operands are swapped as in fp8_linear: weight rows are M, tokens are N. A tile is 128 weight rows
// x 64 columns; a block keeps its token tile and its split of K and walks over strips of 128 rows;
// warp w multiplies rows 16w .. 16w + 15. Weights stay as the checkpoint has them; the ring of
// tiles is filled by 16-byte asynchronous copies of all threads, eight of them a row's 128 bytes.
//
// Products are exact, sums fp32: for one variant they have one order, whatever the batch.
// NaN or infinity in a token stays in that token's output. Rows past a weight's end and tokens past
// the batch hold whatever was in shared memory; they are not stored.
#include "bf16_linear.args.h"
#include "common/bf16_strips.cuh"
#include "common/launch.cuh"
#include "common/linear_work.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/split_k.cuh"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "bf16_linear.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 8 || TOKENS == 16 || TOKENS == 32 || TOKENS == 64,
              "TOKENS is a whole number of mma columns whose sums fit registers");
static_assert(COLS % BF16_TILE_COLS == 0, "K is whole tiles");
static_assert(STAGES >= 2 && SPLIT_K >= 1, "a ring has two stages at least");

constexpr int THREADS = 256;
constexpr int TOKEN_BLOCKS = TOKENS / 8;
constexpr int K_TILES = COLS / BF16_TILE_COLS;
constexpr int LINE = BF16_TILE_COLS * 2;  // bytes
constexpr int X_TILE_BYTES = TOKENS * LINE;
using Work = linear::TileWork<K_TILES, TOKENS, SPLIT_K>;
using Cursor = linear::TileCursor<Work, STAGES>;

// Offsets in shared memory.
constexpr int X_TILES = X_RESIDENT ? Work::MOST_TILES : STAGES;
constexpr int INPUTS = STAGES * BF16_TILE_BYTES;
static_assert(INPUTS + X_TILES * X_TILE_BYTES ==
                  bf16_linear_smem_bytes(TOKENS, STAGES, X_RESIDENT ? X_TILES : 0),
              "host and device agree on the shared memory");

using Strip = linear::Bf16Strip;

// Byte offset of 16-byte chunk `chunk` of line `line`, without bank conflicts for ldmatrix.
__forceinline__ int swizzled(int line, int chunk) {
  return line * LINE + ((chunk ^ (line % 8)) * 16);
}

__forceinline__ void copy_weights(const Strip& strip, const Work& work, u32 shared,
                                  const Cursor& at) {
  const int chunk = threadIdx.x % 8;
  const bf16* from = strip.weight + (work.k_begin + at.k) * BF16_TILE_COLS + chunk * 8;
  const u32 to = shared + at.stage * BF16_TILE_BYTES;
#pragma unroll
  for (int i = 0; i < BF16_TILE_ROWS; i += THREADS / 8) {
    const int line = i + static_cast<int>(threadIdx.x) / 8;
    if (line < strip.rows)
      ptx::copy16_async(to + swizzled(line, chunk), from + static_cast<i64>(line) * COLS);
  }
}
// The input of K tile `k` to place `to_tile`.
__forceinline__ void copy_input(const Bf16LinearArgs& args, const Work& work, u32 shared, int k,
                                int to_tile) {
  for (int i = threadIdx.x; i < work.rows * 8; i += THREADS) {
    const int token = i / 8, chunk = i % 8;
    ptx::copy16_async(shared + INPUTS + to_tile * X_TILE_BYTES + swizzled(token, chunk),
                      args.x + static_cast<i64>(work.token + token) * args.x_stride +
                          (work.k_begin + k) * BF16_TILE_COLS + chunk * 8);
  }
}

// sums += one tile: this warp's 16 weight rows x TOKENS, 64 columns.
__forceinline__ void multiply_tile(float (&sums)[TOKEN_BLOCKS][4], u32 shared, int stage,
                                   int x_tile, int warp, int lane) {
  // ldmatrix: a lane's row within 8 is lane % 8, which is also its line's swizzle.
  const u32 a_line = shared + stage * BF16_TILE_BYTES + (warp * 16 + lane % 16) * LINE;
  const u32 b_line = shared + INPUTS + x_tile * X_TILE_BYTES + lane % 8 * LINE;
  u32 a[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    ptx::load_matrices(a[i], a_line + (((i * 2 + lane / 16) ^ (lane % 8)) * 16));
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 b[4];
      ptx::load_matrices(b, b_line + j * 8 * LINE + (((half * 4 + lane / 8) ^ (lane % 8)) * 16));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const u32(&rows)[4] = a[half * 2 + i];
        mma::bf16(sums[j], rows[0], rows[1], rows[2], rows[3], b[i * 2], b[i * 2 + 1]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bf16_linear(const __grid_constant__ Bf16LinearArgs args) {
  const u32 shared = ptx::shared_address(ptx::dynamic_shared_memory());
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Work work(args.tokens, linear::strips_of(args));

  // STAGES - 1 tiles are in flight, one group of copies each; an empty group past the end keeps
  // the count. The first weights do not wait for the predecessor: they depend on nothing.
  Cursor ahead(work), at(work);
  Strip upcoming = linear::strip_at<COLS>(args, ahead.strip);
  const auto advance_ahead = [&] {
    ahead.advance(work);
    if (ahead.done == 0) upcoming = linear::strip_at<COLS>(args, ahead.strip);
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) {
    if (!ahead.past_end(work)) {
      copy_weights(upcoming, work, shared, ahead);
      advance_ahead();
    }
    if (X_RESIDENT) ptx::commit_copies();
  }
  release_successor();
  wait_for_predecessor();
  if constexpr (X_RESIDENT) {
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
        copy_weights(upcoming, work, shared, ahead);
        if (!X_RESIDENT) copy_input(args, work, shared, ahead.k, ahead.stage);
        advance_ahead();
      }
      ptx::commit_copies();
      multiply_tile(sums, shared, at.stage, X_RESIDENT ? at.k : at.stage, warp, lane);
      at.advance(work);
    }
    const Strip strip = linear::strip_at<COLS>(args, index);
    const auto store = [&](int block, const auto& owned, int stride) {
      linear::store_fragments(strip, owned, work.token + block * 8, stride, work.token + work.rows,
                              warp, lane);
    };
    const int tile = index * static_cast<int>(gridDim.y) + static_cast<int>(blockIdx.y);
    const int units = (work.rows + 7) / 8;
    if constexpr (SPLIT_K == 1) {
      store(0, sums, 1);
    } else if constexpr (LAST_SUMS) {
      u32* const counters = reinterpret_cast<u32*>(
          static_cast<char*>(args.workspace) +
          bf16_linear_counters_at(work.strips, args.tokens, TOKENS, SPLIT_K));
      split_k::reduce_by_last<SPLIT_K, 1>(sums, args.workspace, counters, tile, units, work.split,
                                          warp, lane, store);
    } else {
      split_k::reduce<SPLIT_K, 1>(sums, args.workspace, tile, units, work.split, warp, lane, store);
    }
  }
}

}  // namespace ingot::kernels
