// y = actquant(x) * W^T of many tokens on Hopper's FP8 tensor cores: weights e4m3 with a ue8m0
// scale per 128 x 128 block, inputs e4m3 with a power-of-two scale per token and 128 columns, fp32
// sums.
// Launch contract (host twin: launch_shape in fp8_linear_wide_sm90.space.hpp)
//   grid (blocks that share the tiles), a multiple of the cluster
//   cluster (2) with MULTICAST, otherwise none   block (384)   arch sm_90a
//   smem fp8_linear_wide_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//
// A tile is 128 tokens x 256 weight rows, walked through in steps of 128 columns. Twice as wide as
// fp8_linear_sm90's, because what bounds a step of 128 x 128 is not the tensor cores but what their
// operands cost: of two neighbouring strips the input is brought once, and with MULTICAST the
// weights once for two token tiles. Tokens are the M of the mma: each of two warpgroups has 64 of
// them, whose sums of both strips take 128 registers; the products of one strip and step take
// another 64 and are scaled and added while the tensor cores work for the other warpgroup. The
// output of a finished strip is stored while the next products are under way.
//
// Warps 0-7 multiply, warp 8 streams weights, warp 9 brings the input (10 and 11 fill the
// warpgroup, which gives its registers to the others). The weight stream starts before the
// predecessor has finished: weights depend on nothing. The tensor core's own accumulation keeps
// about 14 bits, so its sums run over 128 columns and no more.
//
// Sums of one token are added in an order that depends on the weight rows alone. NaN or infinity in
// a token stays in that token's output. Results of tokens past the end hold whatever was in shared
// memory; they are not stored.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/fp8_linear.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/ring.cuh"
#include "common/wgmma.cuh"
#include "fp8_linear_wide_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "fp8_linear_wide_sm90.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(STAGES >= 2, "the next step's stage is waited for while one is held");
static_assert(COLS % FP8_TILE == 0, "K is whole tiles");

constexpr int MATH_WARPS = 8, WEIGHT_WARP = 8, INPUT_WARP = 9, THREADS = 384;
constexpr int PRODUCER_REGISTERS = 40, MATH_REGISTERS = 232;
constexpr int TOKENS = FP8_LINEAR_WIDE_TOKENS, STRIPS = FP8_LINEAR_WIDE_STRIPS;
constexpr int CLUSTER = MULTICAST ? 2 : 1;
constexpr int K_TILES = COLS / FP8_TILE;
constexpr int FRAGMENTS = FP8_TILE / 8;  // of 16 tokens x 8 rows per warp
using Sums = float[FRAGMENTS][4];        // of a warp's 16 tokens and one strip

// Offsets in shared memory. A stage holds a step: a weight tile of each strip and the input tile.
constexpr int STAGE_BYTES = (STRIPS + 1) * FP8_TILE_BYTES;
constexpr int STAGE_INPUTS = STRIPS * FP8_TILE_BYTES;
constexpr int INPUT_SCALES = STAGES * STAGE_BYTES;
constexpr int STORES = INPUT_SCALES + STAGES * TOKENS * 4;
constexpr int FULL = STORES + FP8_LINEAR_WIDE_STORE_BYTES;
constexpr int FREE = FULL + STAGES * 8;
static_assert(FREE + STAGES * 8 == fp8_linear_wide_sm90_smem_bytes(STAGES),
              "host and device agree on the shared memory");

// The block's tiles, one after another. Token tiles of the same weights are neighbours, so that
// these are read from memory once.
struct Tiles {
  int strips, pairs, token_tiles, groups;  // groups: of CLUSTER token tiles
  int pair, group, pair_step, group_step;

  __forceinline__ explicit Tiles(const Fp8LinearArgs& args) {
    strips = linear::strips_of(args.segments[0]) + linear::strips_of(args.segments[1]) +
             linear::strips_of(args.segments[2]);
    pairs = static_cast<u32>(strips + STRIPS - 1) / STRIPS;
    token_tiles = static_cast<u32>(args.tokens + TOKENS - 1) / TOKENS;
    groups = static_cast<u32>(token_tiles + CLUSTER - 1) / CLUSTER;
    const u32 cluster = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    pair = cluster / groups;
    group = cluster % groups;
    pair_step = step / groups;
    group_step = step % groups;
  }
  __forceinline__ bool exists() const { return pair < pairs; }
  __forceinline__ void advance() {
    pair += pair_step;
    group += group_step;
    if (group >= groups) group -= groups, ++pair;
  }
  __forceinline__ Tiles next() const {
    Tiles after = *this;
    after.advance();
    return after;
  }

  // Behind the last token tile of a cluster that is not full that tile comes once more; it is not
  // stored again. Likewise the last strip.
  __forceinline__ int token_tile() const {
    return group * CLUSTER + (MULTICAST ? static_cast<int>(blockIdx.x % CLUSTER) : 0);
  }
  __forceinline__ bool token_tile_exists() const { return token_tile() < token_tiles; }
  __forceinline__ int token() const { return min(token_tile(), token_tiles - 1) * TOKENS; }
  __forceinline__ bool strip_exists(int half) const { return pair * STRIPS + half < strips; }
  __forceinline__ int strip(int half) const { return strip_of(pair, half); }
  __forceinline__ int strip_of(int any_pair, int half) const {
    return min(any_pair * STRIPS + half, strips - 1);
  }
  // Groups of four neighbouring pairs, which many tokens' clusters work on at the same time, meet
  // the same columns of the input together; the others are elsewhere.
  __forceinline__ int first_k() const { return linear::first_tile(pair / 4, K_TILES); }
};

// Calls visit(ring, tiles, k) for each step of the block's tiles, in order, once its stage is free.
template <class Visit>
__forceinline__ void for_each_stage(const Fp8LinearArgs& args, u32 shared, Visit visit) {
  RingPlace<STAGES> ring;
#pragma unroll 1
  for (Tiles tiles(args); tiles.exists(); tiles.advance()) {
    int k = tiles.first_k();
#pragma unroll 1
    for (int i = 0; i < K_TILES; ++i, k = linear::next_tile(k, K_TILES)) {
      barrier::wait(shared + FREE + ring.stage * 8, ring.parity ^ 1);
      visit(ring, tiles, k);
      ring.advance();
    }
  }
}

// One lane: all weights.
__forceinline__ void stream_weights(const Fp8LinearArgs& args, u32 shared) {
  const u64 policy = barrier::evict_first_policy();
  for_each_stage(args, shared, [&](const auto& ring, const Tiles& tiles, int k) {
    const u32 full = shared + FULL + ring.stage * 8;
    barrier::arrive_expect(full, STRIPS * FP8_TILE_BYTES);
#pragma unroll
    for (int half = 0; half < STRIPS; ++half) {
      const u32 to = shared + ring.stage * STAGE_BYTES + half * FP8_TILE_BYTES;
      const fp8_e4m3* const tile =
          linear::strip_at<K_TILES>(args, tiles.strip(half)).tiles + k * FP8_TILE_BYTES;
      if constexpr (MULTICAST) {  // each block of the cluster reads half of a tile for both
        constexpr int HALF = FP8_TILE_BYTES / 2;
        const int offset = static_cast<int>(blockIdx.x % CLUSTER) * HALF;
        barrier::copy_bulk_multicast(to + offset, tile + offset, HALF, full, 3, policy);
      } else {
        barrier::copy_bulk(to, tile, FP8_TILE_BYTES, full, policy);
      }
    }
  });
}

// One lane: all input.
__forceinline__ void stream_input(const Fp8LinearArgs& args, u32 shared) {
  for_each_stage(args, shared, [&](const auto& ring, const Tiles& tiles, int k) {
    const int token = tiles.token(), rows = min(TOKENS, args.tokens - token);
    const u32 tile_bytes = rows * FP8_TILE, scale_bytes = (rows + 3) / 4 * 16;
    const u32 full = shared + FULL + ring.stage * 8;
    const i64 from = static_cast<i64>(k) * args.x_rows + token;
    barrier::arrive_expect(full, tile_bytes + scale_bytes);
    barrier::copy_bulk(shared + ring.stage * STAGE_BYTES + STAGE_INPUTS, args.xq + from * FP8_TILE,
                       tile_bytes, full);
    barrier::copy_bulk(shared + INPUT_SCALES + ring.stage * TOKENS * 4, args.x_scale + from,
                       scale_bytes, full);
  });
}

// The scales of a tile's weights, a K tile per lane and register, both strips' as bf16 in one word;
// the next tile's are asked for while this one is multiplied.
struct WeightScales {
  static constexpr int COUNT = (K_TILES + 31) / 32;
  linear::TileScaleBytes<K_TILES> upcoming[STRIPS];
  u32 current[COUNT];

  __forceinline__ void load(const Fp8LinearArgs& args, const Tiles& tiles, int pair) {
    const int lane = ptx::thread_here() % 32;
#pragma unroll
    for (int half = 0; half < STRIPS; ++half)
      upcoming[half].load(linear::strip_at<K_TILES>(args, tiles.strip_of(pair, half)).scale,
                          K_TILES, lane);
  }
  __forceinline__ void take() {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      current[i] = as_bf16(upcoming[0].byte[i]) | as_bf16(upcoming[1].byte[i]) << 16;
  }
  static __forceinline__ u32 as_bf16(u32 byte) {
    return byte == 0 ? 0x40u : byte << 7;
  }
  // Called by whole warps.
  __forceinline__ u32 at(int k) const {
    u32 chosen = __shfl_sync(0xffffffffu, current[0], k);  // modulo 32
#pragma unroll
    for (int i = 1; i < COUNT; ++i) {
      const u32 other = __shfl_sync(0xffffffffu, current[i], k);
      chosen = k / 32 == i ? other : chosen;
    }
    return chosen;
  }
};

// What the products of a step are multiplied with: the scales of the lane's two tokens, for each
// strip times its weights'.
struct StepScales {
  float first[STRIPS], second[STRIPS];

  // @param from     shared address of the scale of the lane's first token
  // @param weights  of both strips, as bf16
  __forceinline__ StepScales(u32 from, u32 weights) {
    const float a = ptx::load_shared_float(from), b = ptx::load_shared_float(from + 8 * 4);
    const float even = __uint_as_float(weights << 16), odd = __uint_as_float(weights & 0xffff0000u);
    first[0] = a * even;
    second[0] = b * even;
    first[1] = a * odd;
    second[1] = b * odd;
  }
};

__forceinline__ void hold_products(Sums& part) {
#pragma unroll
  for (int j = 0; j < FRAGMENTS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      wgmma::hold(part[j][e]);
}
// Starts part = the products of 64 tokens and a strip's 128 rows over 128 columns.
__forceinline__ void start_products(Sums& part, u32 inputs, u32 weights) {
  hold_products(part);
  wgmma::fence();
#pragma unroll
  for (int step = 0; step < FP8_TILE / 32; ++step) {
    const u32 offset = step * wgmma::kStep32;
    wgmma::mma_e4m3<FP8_TILE>(part, wgmma::tile_descriptor(inputs + offset),
                              wgmma::tile_descriptor(weights + offset), step > 0);
  }
  wgmma::commit();
}
__forceinline__ void add_scaled(Sums& sums, const Sums& part, float first, float second) {
#pragma unroll
  for (int j = 0; j < FRAGMENTS; ++j) {
    sums[j][0] = fmaf(part[j][0], first, sums[j][0]);
    sums[j][1] = fmaf(part[j][1], first, sums[j][1]);
    sums[j][2] = fmaf(part[j][2], second, sums[j][2]);
    sums[j][3] = fmaf(part[j][3], second, sums[j][3]);
  }
}
__forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int j = 0; j < FRAGMENTS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[j][e] = 0.0f;
}

// Gives a stage back, to both blocks that write there.
__forceinline__ void free_stage(u32 shared, int stage, int lane) {
  const u32 free = shared + FREE + stage * 8;
  if constexpr (MULTICAST) {
    __syncwarp();
    if (lane < CLUSTER) barrier::arrive_remote(free, lane);
  } else {
    barrier::arrive_warp(free, lane);
  }
}

// The warp's 16 tokens of a finished strip, through shared memory that is the warp's own: a lane
// puts four neighbouring rows of every 16 there and takes eight of two tokens at a time, so that
// whole lines are stored. 16-byte chunks are swizzled by the token.
__forceinline__ void store_strip(const Fp8LinearArgs& args, const Tiles& tiles, int half,
                                 const Sums& sums, u32 shared) {
  constexpr int ROW = FP8_TILE * 2;  // bytes
  const int thread = ptx::thread_here(), warp = thread / 32, lane = thread % 32;
  const u32 rows = shared + STORES + warp * (16 * ROW);
  const u32 to = rows + lane / 4 * ROW + lane % 2 * 8;
  const int chunk = lane % 4 / 2, swizzle = lane / 4;
  __syncwarp();  // all have taken what they stored last time
#pragma unroll
  for (int j = 0; j < FRAGMENTS; j += 2) {
    const u32 at = to + ((j + chunk) ^ swizzle) * 16;
    ptx::store_shared(at, make_uint2(pack_bf16(sums[j][0], sums[j][1]),
                                     pack_bf16(sums[j + 1][0], sums[j + 1][1])));
    ptx::store_shared(at + 8 * ROW, make_uint2(pack_bf16(sums[j][2], sums[j][3]),
                                               pack_bf16(sums[j + 1][2], sums[j + 1][3])));
  }
  __syncwarp();
  const linear::Strip strip = linear::strip_at<K_TILES>(args, tiles.strip(half));
  const int pair = lane / 16, chunk_taken = lane % 16;
  const int token = tiles.token() + warp * 16 + pair;
  const int end = tiles.token_tile_exists() && tiles.strip_exists(half) ? args.tokens : 0;
  bf16* const out = strip.out + static_cast<i64>(token) * strip.out_stride + chunk_taken * 8;
#pragma unroll 1
  for (int eighth = 0; eighth < 16; eighth += 8) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const uint4 values = ptx::load_shared_words(rows + (eighth + i + pair) * ROW +
                                                  (chunk_taken ^ (i + pair)) * 16);
      if (token + eighth + i < end)
        *reinterpret_cast<uint4*>(out + static_cast<i64>(eighth + i) * strip.out_stride) = values;
    }
  }
}

__forceinline__ void multiply(const Fp8LinearArgs& args, u32 shared, int warp, int lane) {
  // Of the first lane, so that the compiler sees that it is the same in all: then descriptors live
  // in uniform registers, which the mma takes.
  const u32 my_inputs = wgmma::tile_place(shared + STAGE_INPUTS) +
                        __shfl_sync(0xffffffffu, warp / 4, 0) * (64 * FP8_TILE / 16);
  const u32 first_weights = wgmma::tile_place(shared);
  constexpr u32 SECOND_STRIP = FP8_TILE_BYTES / 16, NEXT_STAGE = STAGE_BYTES / 16;
  const u32 my_scales = shared + INPUT_SCALES + (warp * 16 + lane / 4) * 4;
  RingPlace<STAGES> ring;
  Tiles tiles(args);
  if (!tiles.exists()) return;
  WeightScales scales;
  scales.load(args, tiles, tiles.pair);
  scales.take();
  scales.load(args, tiles, tiles.next().pair);

  Sums sums[STRIPS], part;
  clear(part);
  clear(sums[0]);
  clear(sums[1]);
  int k = tiles.first_k(), left = K_TILES;
  barrier::wait(shared + FULL, 0);
  StepScales step(my_scales, scales.at(k));
  start_products(part, my_inputs, first_weights);
#pragma unroll 1
  while (true) {
    // While the first strip's products are under way: all that the next step needs. Behind the last
    // step its stage is gone through once more, for nobody: a branch around an mma would make the
    // compiler wait for every one of them.
    const bool ends = left == 1, last = ends && !tiles.next().exists();
    const int stage = ring.stage;
    k = linear::next_tile(k, K_TILES);
    --left;
    if (ends) {
      scales.take();
      k = tiles.next().first_k();
      left = K_TILES;
    }
    if (!last) {
      ring.advance();
      barrier::wait(shared + FULL + ring.stage * 8, ring.parity);
    }
    const StepScales next(my_scales + ring.stage * (TOKENS * 4), scales.at(k));
    wgmma::wait<0>();
    hold_products(part);
    add_scaled(sums[0], part, step.first[0], step.second[0]);
    start_products(part, my_inputs + stage * NEXT_STAGE,
                   first_weights + stage * NEXT_STAGE + SECOND_STRIP);
    if (ends) {
      store_strip(args, tiles, 0, sums[0], shared);
      clear(sums[0]);
    }
    wgmma::wait<0>();
    hold_products(part);
    add_scaled(sums[1], part, step.first[1], step.second[1]);
    start_products(part, my_inputs + ring.stage * NEXT_STAGE,
                   first_weights + ring.stage * NEXT_STAGE);
    free_stage(shared, stage, lane);
    step = next;
    if (ends) {
      store_strip(args, tiles, 1, sums[1], shared);
      if (last) break;
      clear(sums[1]);
      tiles.advance();
      scales.load(args, tiles, tiles.next().pair);  // behind the last tile, the last strip's
    }
  }
  wgmma::wait<0>();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fp8_linear_wide_sm90(const __grid_constant__ Fp8LinearArgs args) {
  const u32 shared = ptx::shared_address(ptx::dynamic_shared_memory());
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warp == WEIGHT_WARP) {
    if (lane == 0) {
#pragma unroll 1
      for (int i = 0; i < STAGES; ++i) {
        barrier::init(shared + FULL + i * 8, 2);
        barrier::init(shared + FREE + i * 8,
                      MATH_WARPS * (MULTICAST ? CLUSTER : barrier::WARP_ARRIVALS));
      }
      barrier::publish_init();
    }
    __syncwarp();
  } else if (warp > WEIGHT_WARP) {
    release_successor();
  }
  if constexpr (MULTICAST) {  // copies land in the sibling and arrivals come from there
    barrier::arrive_cluster();
    barrier::wait_cluster();
  }
  __syncthreads();

  if (warp >= MATH_WARPS) {
    ptx::give_registers<PRODUCER_REGISTERS>();
    if (warp == WEIGHT_WARP) {
      if (lane == 0) stream_weights(args, shared);
    } else {
      wait_for_predecessor();
      if (warp == INPUT_WARP && lane == 0) stream_input(args, shared);
    }
    __syncwarp();
  } else {
    ptx::take_registers<MATH_REGISTERS>();
    wait_for_predecessor();
    multiply(args, shared, warp, lane);
    if constexpr (MULTICAST) {  // the sibling still arrives at this block's barriers
      barrier::arrive_cluster();
      barrier::wait_cluster();
    }
  }
}

}  // namespace ingot::kernels
