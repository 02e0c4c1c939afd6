// y_g = x_g * W_g^T for each group of columns, as grouped_linear.cuh, of many tokens, on Hopper's
// wgmma. Launch contract (host twin: launch_shape in grouped_linear_sm90.space.hpp)
//   grid (blocks that share the tiles), any number   block (384)   cluster none   arch sm_90a
//   smem grouped_linear_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//
// Weight rows are the M of the mma, tokens its N. A tile is a strip of 128 weight rows and TOKENS
// tokens; blocks deal the tiles out strip after strip, so that those that run side by side share
// their input in the L2. Four warps bring weights (bulk copies) and input (16-byte copies, swizzled
// on their way); each of two warpgroups multiplies 64 rows: codes become bf16 in registers, one
// warpgroup's while the tensor cores work for the other.
//
// A weight tile's scale, a power of two, enters its bf16 numbers relative to the strip's largest,
// which multiplies the sums: exact as long as bf16 holds the quotient, down to 2^-133; what is
// smaller than that beside the strip's largest scale counts as zero. Sums are fp32 in the tensor
// cores' order: a token's result does not depend on its place or on other tokens. NaN or infinity
// in a token stays in that token's output. Tokens past the end hold whatever was in shared memory;
// they are not stored.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/line_copies.cuh"
#include "common/ptx.cuh"
#include "common/ring.cuh"
#include "common/strip_tiles.cuh"
#include "common/wgmma_bf16.cuh"
#include "grouped_linear_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "grouped_linear_sm90.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 64 || TOKENS == 128 || TOKENS == 256, "the N of the mma");
static_assert(COLS % FP8_TILE == 0 && COLS / FP8_TILE <= 64, "K is whole tiles; a lane has two");
static_assert(W_STAGES >= 2 && X_STAGES >= 2, "rings have two stages at least");

constexpr int PRODUCERS = 128, THREADS = 384, MATH_WARPS = 8;
constexpr int PRODUCER_REGISTERS = 64, MATH_REGISTERS = 216;
constexpr int K_TILES = COLS / FP8_TILE;
constexpr int X_TILE_BYTES = TOKENS * GROUPED_LINE;

// Offsets in shared memory.
constexpr int INPUTS = W_STAGES * FP8_TILE_BYTES;
constexpr int W_FULL = INPUTS + X_STAGES * X_TILE_BYTES, W_FREE = W_FULL + W_STAGES * 8;
constexpr int X_FULL = W_FREE + W_STAGES * 8, X_FREE = X_FULL + X_STAGES * 8;
static_assert(X_FREE + X_STAGES * 8 == grouped_linear_sm90_smem_bytes(TOKENS, W_STAGES, X_STAGES),
              "host and device agree on the shared memory");

using Tiles = StripTiles<TOKENS>;

__forceinline__ void run_producer(const GroupedLinearArgs& args, u32 shared) {
  const int thread = static_cast<int>(threadIdx.x), chunk = thread % 8, first = thread / 8;
  const u32 place_in_tile = first * GROUPED_LINE + ((chunk ^ (first % 8)) * 16);
  RingPlace<W_STAGES> w;
  RingPlace<X_STAGES> x;
#pragma unroll 1
  for (Tiles tiles(args.rows / FP8_TILE, args.tokens); tiles.exists(); tiles.advance()) {
    const int strip = tiles.strip(), group = strip * FP8_TILE / args.group_rows;
    const fp8_e4m3* weights = args.weight + static_cast<i64>(strip) * K_TILES * FP8_TILE_BYTES;
    LineCopies<TOKENS, PRODUCERS> lines(
        args.x + static_cast<i64>(tiles.token() + first) * args.x_stride + group * COLS + chunk * 8,
        args.x_stride, min(TOKENS, args.tokens - tiles.token()) - first);
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      if (thread == 0) {
        const u32 full = shared + W_FULL + w.stage * 8;
        barrier::wait(shared + W_FREE + w.stage * 8, w.parity ^ 1);
        barrier::arrive_expect(full, FP8_TILE_BYTES);
        barrier::copy_bulk(shared + w.stage * FP8_TILE_BYTES, weights, FP8_TILE_BYTES, full);
      }
      weights += FP8_TILE_BYTES;
      w.advance();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        barrier::wait(shared + X_FREE + x.stage * 8, x.parity ^ 1);
        lines.copy(shared + INPUTS + x.stage * X_TILE_BYTES + place_in_tile, half * 64);
        barrier::arrive_when_copied(shared + X_FULL + x.stage * 8);
        x.advance();
      }
      lines.advance(FP8_TILE);
    }
  }
}

// The scales of a strip's tiles: lane l of a warp has those of tiles l and l + 32.
struct StripScales {
  u32 low, high, largest;

  __forceinline__ StripScales(const ue8m0* scale, int strip, int lane) {
    const u8* const from = reinterpret_cast<const u8*>(scale) + static_cast<i64>(strip) * K_TILES;
    low = lane < K_TILES ? from[lane] : 0;
    high = lane + 32 < K_TILES ? from[lane + 32] : 0;
    largest = __reduce_max_sync(0xffffffffu, max(low, high));
  }
  // bf16 of 2^120 times the tile's scale over the largest, twice; 0 where that is no normal number.
  __forceinline__ u32 factor(int k) const {
    const u32 byte = __shfl_sync(0xffffffffu, k < 32 ? low : high, k % 32);
    const u32 exponent = byte + 247 > largest ? byte + 247 - largest : 0;
    return exponent << 7 | exponent << 23;
  }
  __forceinline__ float largest_value() const {
    return __uint_as_float(largest == 0 ? 0x00400000u : largest << 23);
  }
};

__forceinline__ void run_math(const GroupedLinearArgs& args, u32 shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - PRODUCERS / 32;  // 16 lines each
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = warp * 16 + lane / 4;
  RingPlace<W_STAGES> w;
  RingPlace<X_STAGES> x;
#pragma unroll 1
  for (Tiles tiles(args.rows / FP8_TILE, args.tokens); tiles.exists(); tiles.advance()) {
    const StripScales scales(args.scale, tiles.strip(), lane);
    float d[TOKENS / 8][4];
#pragma unroll 1
    for (int k = 0; k < K_TILES; ++k) {
      const u32 factor = scales.factor(k);
      barrier::wait(shared + W_FULL + w.stage * 8, w.parity);
      const u32 codes = shared + w.stage * FP8_TILE_BYTES + line * FP8_TILE + lane % 4 * 2;
      u32 a[8][4];
#pragma unroll
      for (int chunk = 0; chunk < 8; ++chunk) {
        const u32 at = codes + ((chunk ^ (line % 8)) * 16);
        a[chunk][0] = wgmma::codes_to_bf16(wgmma::load_two_codes(at), factor);
        a[chunk][1] = wgmma::codes_to_bf16(wgmma::load_two_codes(at + 8 * FP8_TILE), factor);
        a[chunk][2] = wgmma::codes_to_bf16(wgmma::load_two_codes(at + 8), factor);
        a[chunk][3] = wgmma::codes_to_bf16(wgmma::load_two_codes(at + 8 * FP8_TILE + 8), factor);
      }
      __syncwarp();
      if (lane == 0) barrier::arrive(shared + W_FREE + w.stage * 8);
      w.advance();

      u32 free[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        barrier::wait(shared + X_FULL + x.stage * 8, x.parity);
        barrier::publish_to_async_proxy();  // the copies were ordinary ones
        free[half] = shared + X_FREE + x.stage * 8;
        const u32 place = wgmma::tile_place(shared + INPUTS + x.stage * X_TILE_BYTES);
        x.advance();
        wgmma::fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
          wgmma::mma_bf16_registers<TOKENS>(d, a[4 * half + i],
                                            wgmma::tile_descriptor(place + i * wgmma::kStep32),
                                            k + half + i > 0 ? 1 : 0);
        wgmma::commit();
      }
      wgmma::wait<0>();
      wgmma::hold_all(d);
      wgmma::hold_all(a);
      __syncwarp();
      if (lane == 0) {
        barrier::arrive(free[0]);
        barrier::arrive(free[1]);
      }
    }
    const float scale = scales.largest_value();
    bf16* const out = args.out + tiles.strip() * FP8_TILE + warp * 16 + lane % 4 * 4;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; ++j) {
      // Lines are permuted so that a lane's four after the transposition are neighbouring rows.
      const u32 low = ptx::transpose_matrix(pack_bf16(d[j][0] * scale, d[j][1] * scale));
      const u32 high = ptx::transpose_matrix(pack_bf16(d[j][2] * scale, d[j][3] * scale));
      const int token = tiles.token() + j * 8 + lane / 4;
      if (token < args.tokens)
        *reinterpret_cast<uint2*>(out + static_cast<i64>(token) * args.out_stride) =
            make_uint2(low, high);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    grouped_linear_sm90(const __grid_constant__ GroupedLinearArgs args) {
  const u32 shared = ptx::shared_address(ptx::dynamic_shared_memory());
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int stage = 0; stage < W_STAGES; ++stage) {
      barrier::init(shared + W_FULL + stage * 8, 1);
      barrier::init(shared + W_FREE + stage * 8, MATH_WARPS);
    }
#pragma unroll 1
    for (int stage = 0; stage < X_STAGES; ++stage) {
      barrier::init(shared + X_FULL + stage * 8, PRODUCERS);
      barrier::init(shared + X_FREE + stage * 8, MATH_WARPS);
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
