// y = x * W^T as bf16_linear.cuh, of many tokens, on Hopper's wgmma.
// Launch contract (host twin: launch_shape in bf16_linear_sm90.space.hpp)
//   grid (blocks that share the tiles), any number   block (384)   cluster none   arch sm_90a
//   smem bf16_linear_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//
// Weight rows are the M of the mma, tokens its N. A tile is a strip of 128 weight rows and TOKENS
// tokens; blocks deal the tiles out strip after strip, so that those that run side by side share
// their input in the L2. Four warps bring weights and input by 16-byte copies, swizzled on their
// way; each of two warpgroups multiplies 64 rows, both operands from shared memory, and frees a
// stage when the products of the next are under way.
//
// Bytes decide: a tile takes as long as its copies, of 128 + TOKENS rows. On an H200 CSA's 2,624
// rows and 4,096 tokens take 150 us in tiles of 128 tokens, 590 TFLOP/s, and 213 in tiles of 64.
// Tiles of 256 read least, but took 181: a stage of theirs is 24 copies of a producer's thread.
//
// Sums are fp32 in the tensor cores' order: a token's result does not depend on its place or on
// other tokens. NaN or infinity in a token stays in that token's output. Rows past a weight's end
// and tokens past the batch hold whatever was in shared memory; they are not stored.
#include "bf16_linear_sm90.args.h"
#include "common/barrier.cuh"
#include "common/bf16_strips.cuh"
#include "common/launch.cuh"
#include "common/line_copies.cuh"
#include "common/ptx.cuh"
#include "common/ring.cuh"
#include "common/strip_tiles.cuh"
#include "common/wgmma_bf16_shared.cuh"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "bf16_linear_sm90.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 64 || TOKENS == 128, "the N of the mma");
static_assert(COLS % BF16_TILE_COLS == 0, "K is whole tiles");
static_assert(STAGES >= 2, "a ring has two stages at least");

constexpr int PRODUCERS = 128, THREADS = 384, MATH_WARPS = 8;
constexpr int PRODUCER_REGISTERS = 56, MATH_REGISTERS = 224;
constexpr int K_TILES = COLS / BF16_TILE_COLS;
constexpr int LINE = BF16_TILE_COLS * 2;  // bytes
constexpr int X_TILE_BYTES = TOKENS * LINE;
constexpr int GROUP_BYTES = 64 * LINE;  // of a warpgroup's weight rows

// Offsets in shared memory.
constexpr int INPUTS = STAGES * BF16_TILE_BYTES;
constexpr int FULL = INPUTS + STAGES * X_TILE_BYTES, FREE = FULL + STAGES * 8;
static_assert(FREE + STAGES * 8 == bf16_linear_sm90_smem_bytes(TOKENS, STAGES),
              "host and device agree on the shared memory");

using Tiles = StripTiles<TOKENS>;

__forceinline__ void run_producer(const Bf16LinearArgs& args, u32 shared) {
  const int thread = static_cast<int>(threadIdx.x), chunk = thread % 8, first = thread / 8;
  const u32 place_in_tile = first * LINE + ((chunk ^ (first % 8)) * 16);
  RingPlace<STAGES> at;
#pragma unroll 1
  for (Tiles tiles(linear::strips_of(args), args.tokens); tiles.exists(); tiles.advance()) {
    const linear::Bf16Strip strip = linear::strip_at<COLS>(args, tiles.strip());
    const int tokens = min(TOKENS, args.tokens - tiles.token());
    LineCopies<BF16_TILE_ROWS, PRODUCERS> weights(
        strip.weight + static_cast<i64>(first) * COLS + chunk * 8, COLS, strip.rows - first);
    LineCopies<TOKENS, PRODUCERS> input(
        args.x + static_cast<i64>(tiles.token() + first) * args.x_stride + chunk * 8, args.x_stride,
        tokens - first);
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      barrier::wait(shared + FREE + at.stage * 8, at.parity ^ 1);
      weights.copy(shared + at.stage * BF16_TILE_BYTES + place_in_tile, 0);
      input.copy(shared + INPUTS + at.stage * X_TILE_BYTES + place_in_tile, 0);
      barrier::arrive_when_copied(shared + FULL + at.stage * 8);
      weights.advance(BF16_TILE_COLS);
      input.advance(BF16_TILE_COLS);
      at.advance();
    }
  }
}

__forceinline__ void run_math(const Bf16LinearArgs& args, u32 shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - PRODUCERS / 32;  // 16 rows each
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingPlace<STAGES> at;
#pragma unroll 1
  for (Tiles tiles(linear::strips_of(args), args.tokens); tiles.exists(); tiles.advance()) {
    float d[TOKENS / 8][4];
    u32 before = 0;  // barrier of the stage whose products may still run
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      barrier::wait(shared + FULL + at.stage * 8, at.parity);
      barrier::publish_to_async_proxy();  // the copies were ordinary ones
      const u32 a = wgmma::tile_place(shared + at.stage * BF16_TILE_BYTES + warp / 4 * GROUP_BYTES);
      const u32 b = wgmma::tile_place(shared + INPUTS + at.stage * X_TILE_BYTES);
      wgmma::fence();
#pragma unroll
      for (int i = 0; i < BF16_TILE_COLS / 16; ++i)
        wgmma::mma_bf16<TOKENS>(d, wgmma::tile_descriptor(a + i * wgmma::kStep32),
                                wgmma::tile_descriptor(b + i * wgmma::kStep32), k + i > 0 ? 1 : 0);
      wgmma::commit();
      wgmma::wait<1>();
      if (k > 0) barrier::arrive_warp(before, lane);
      before = shared + FREE + at.stage * 8;
      at.advance();
    }
    wgmma::wait<0>();
    wgmma::hold_all(d);
    barrier::arrive_warp(before, lane);
    linear::store_fragments(linear::strip_at<COLS>(args, tiles.strip()), d, tiles.token(), 1,
                            min(tiles.token() + TOKENS, args.tokens), warp, lane);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bf16_linear_sm90(const __grid_constant__ Bf16LinearArgs args) {
  const u32 shared = ptx::shared_address(ptx::dynamic_shared_memory());
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier::init(shared + FULL + stage * 8, PRODUCERS);
      barrier::init(shared + FREE + stage * 8, MATH_WARPS * barrier::WARP_ARRIVALS);
    }
    barrier::publish_init();
  }
  __syncthreads();
  release_successor();
  wait_for_predecessor();
  if (threadIdx.x < PRODUCERS) {
    ptx::give_registers<PRODUCER_REGISTERS>();
    run_producer(args, shared);
  } else {
    ptx::take_registers<MATH_REGISTERS>();
    run_math(args, shared);
  }
}

}  // namespace ingot::kernels
