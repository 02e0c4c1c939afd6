// y = actquant(x) * W^T on Hopper's FP8 tensor cores: weights e4m3 with a ue8m0 scale per 128 x 128
// block, inputs e4m3 with a power-of-two scale per token and 128 columns, fp32 sums.
// Launch contract (host twin: launch_shape in fp8_linear_sm90.space.hpp)
//   grid (SPLIT_K, token tiles, blocks that share the strips)
//     all resident at once when SPLIT_K > 1 and not CLUSTERED
//     one strip per block when CLUSTERED, or SPLIT_K > 1 and TOKENS >= 64
//   cluster CLUSTERED: (SPLIT_K, 1, 1); MULTICAST: (1, 2, 1); otherwise none
//   block (384)   arch sm_90a   smem fp8_linear_sm90_smem_bytes(...), dynamic
//   programmatic dependent launch: yes
//
// Up to 32 tokens, operands are swapped: weight rows are M (64 per warpgroup), tokens are N, so few
// tokens cost little; this is a weight stream, and everything below serves to keep copies in
// flight; a warpgroup has DEPTH tiles started. From 64 tokens on, tokens are M and weight rows N: a
// thread then needs two input scales per tile instead of one per four products. There the tensor
// cores are the bound, so they are never without work: each warpgroup starts the next tile before
// it scales one, with everything that the start needs already at hand.
//
// A tile is 128 weight rows x 128 columns. A block keeps its token tile and its split of K and
// walks over strips of 128 rows. Warps 0-7 multiply, warp 8 streams weights, warp 9 brings the
// input (10 and 11 fill the warpgroup, which gives its registers to the others). The weight stream
// starts before the predecessor has finished: weights depend on nothing. The tensor core's own
// accumulation keeps about 14 bits, so partial sums of one tile (128 columns) are added to fp32
// registers, which is also where the scales come in.
//
// NaN or infinity in a token stays in that token's output: tokens are columns or rows of the mma
// and meet nowhere. Results of tokens past the end hold whatever was in shared memory; they are not
// stored.
#include "common/barrier.cuh"
#include "common/fp8.cuh"
#include "common/fp8_linear.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/ring.cuh"
#include "common/split_k.cuh"
#include "common/split_k_staged.cuh"
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
static_assert(X_RESIDENT || !QUANTIZE, "what is quantised here stays in shared memory");
static_assert(STAGES >= 2 && SPLIT_K >= 1, "a ring has two stages at least");
static_assert(DEPTH == 1 || DEPTH == 2 || DEPTH == 4, "tiles are taken in ones, twos or fours");
static_assert(DEPTH <= STAGES, "started tiles lie in the ring");
static_assert(!(CLUSTERED && MULTICAST), "a cluster serves one purpose");
static_assert(!CLUSTERED || (SPLIT_K > 1 && SPLIT_K <= 8), "a portable cluster has 2 to 8 blocks");
static_assert(!WARM_UP || SPLIT_K == 1 || CLUSTERED, "who splits K through L2 has another loop");

constexpr int MATH_WARPS = 8, WEIGHT_WARP = 8, INPUT_WARP = 9, THREADS = 384;
constexpr int X_TILE_BYTES = TOKENS * FP8_TILE;
constexpr bool TOKENS_AS_M = TOKENS >= FP8_LINEAR_SM90_TOKENS_AS_M;
// The mma's N: tokens, or the weight lines of a warpgroup: all 128 when each has 64 tokens of its
// own, else half of them.
constexpr int MMA_N = TOKENS;                // 128 lines with 128 tokens, 64 with 64
constexpr int BLOCKS = MMA_N / 8;            // fragments of 16 x 8 per warp
constexpr int VECTOR = TOKENS_AS_M ? 2 : 1;  // fragments of a unit of exchange
constexpr bool BULK_EXCHANGE = TOKENS >= 32;
// Many tokens whose K is split through L2: multiply_split, of one strip.
constexpr bool SPLIT_MANY = TOKENS_AS_M && SPLIT_K > 1 && !CLUSTERED;
constexpr bool ONE_STRIP = CLUSTERED || SPLIT_MANY;
// Two such splits of large tiles: each block finishes the half of the strip that the other one owns
// first. That half lies first in the ring, too.
constexpr bool HALVES = SPLIT_MANY && SPLIT_K == 2 && TOKENS == 128;
// So many tiles are gone through by halves: long enough for the other block's sums to arrive; more
// cost more than they hide, because a half takes some 450 cycles where it should take 330.
constexpr int HALVED_TILES = STAGES < 4 ? STAGES : 4;
// Many tokens need more than the 168 registers that 12 warps can have each.
constexpr bool MOVE_REGISTERS = TOKENS >= 64;
constexpr int QUANTIZED = 1, RING_IDLE = 2;  // named barriers

using Work = linear::Work<COLS, TOKENS, SPLIT_K>;
using Sums = float[BLOCKS][4];

// Offsets in shared memory.
constexpr int X_TILES = X_RESIDENT ? Work::MOST_TILES : STAGES;
constexpr int INPUTS = STAGES * FP8_TILE_BYTES;
constexpr int INPUT_SCALES = INPUTS + X_TILES * X_TILE_BYTES;
constexpr int EXCHANGE = INPUT_SCALES + X_TILES * TOKENS * 4;
constexpr int STORES = EXCHANGE + (CLUSTERED ? fp8_linear_sm90_exchange_bytes(TOKENS, SPLIT_K) : 0);
constexpr bool STORE_BULK = TOKENS_AS_M && SPLIT_K == 1;
constexpr int STORE_ROW = fp8_linear_sm90_store_row(TOKENS);
constexpr int BARRIERS = STORES + fp8_linear_sm90_store_bytes(TOKENS, SPLIT_K);
static_assert(STORES % 16 == 0 && BARRIERS % 8 == 0, "bulk stores and barriers are aligned");
constexpr int RESIDENT_TILES = X_RESIDENT ? X_TILES : 0;
constexpr int FULL = BARRIERS, EMPTY = FULL + STAGES * 8, INPUT_FULL = EMPTY + STAGES * 8,
              EXCHANGED = INPUT_FULL + RESIDENT_TILES * 8;
static_assert(EXCHANGED + MATH_WARPS * 8 ==
                  fp8_linear_sm90_smem_bytes(TOKENS, STAGES, RESIDENT_TILES, SPLIT_K, CLUSTERED),
              "host and device agree on the shared memory");

static_assert(!(CLUSTERED ? BULK_EXCHANGE : SPLIT_MANY && !HALVES) ||
                  STAGES * FP8_TILE_BYTES >= TOKENS * 512,
              "partial sums are staged in the ring");

using Ring = RingPlace<STAGES>;

// Calls visit(ring, k) for each tile of the block's work from the `skip`th of the first strip on,
// in order, once its stage is free. `enter(strip)` is called before a strip's first tile.
template <class Enter, class Visit>
__forceinline__ void for_each_stage(const Work& work, u32 shared, int skip, Enter enter,
                                    Visit visit) {
  Ring ring;
  ring.stage = skip % STAGES;
  ring.parity = skip / STAGES;
  bool first_round = skip < STAGES;  // nobody has to free these stages
  for (int strip = work.first_strip; strip < work.strips; strip += work.step) {
    enter(strip);
    int k = linear::first_tile(strip, work.tiles) + skip;
    if (k >= work.tiles) k -= work.tiles;
#pragma unroll 1
    for (int i = skip; i < work.tiles; ++i, k = linear::next_tile(k, work.tiles)) {
      if (!first_round) barrier::wait(shared + EMPTY + ring.stage * 8, ring.parity ^ 1);
      visit(ring, k);
      ring.advance();
      if (ring.stage == 0) first_round = false;
    }
    skip = 0;
    if (ONE_STRIP) break;
  }
}

// The first copies of weights, asked for before anything else is done.
constexpr int EARLY = MULTICAST ? 0 : STAGES;
__forceinline__ void copy_weights(const fp8_e4m3* split_tiles, int k, int stage, u32 shared,
                                  u64 policy) {
  const u32 full = shared + FULL + stage * 8;
  barrier::arrive_expect(full, FP8_TILE_BYTES);
  const fp8_e4m3* const from = split_tiles + k * FP8_TILE_BYTES;
  const u32 to = shared + stage * FP8_TILE_BYTES;
  constexpr int HALF = FP8_TILE_BYTES / 2;
  const int other_first = HALVES && blockIdx.x == 0 ? HALF : 0;
  if constexpr (MULTICAST) {  // each block of the pair reads half of a tile for both
    const int offset = static_cast<int>(blockIdx.y % 2) * HALF;
    barrier::copy_bulk_multicast(to + (offset ^ other_first), from + offset, HALF, full, 3, policy);
  } else if constexpr (HALVES) {
    barrier::copy_bulk(to + other_first, from, HALF, full, policy);
    barrier::copy_bulk(to + (HALF ^ other_first), from + HALF, HALF, full, policy);
  } else {
    barrier::copy_bulk(to, from, FP8_TILE_BYTES, full, policy);
  }
}
__forceinline__ const fp8_e4m3* split_tiles(const Fp8LinearArgs& args, const Work& work,
                                            int strip) {
  return linear::strip_at<Work::K_TILES>(args, strip).tiles + work.k_begin * FP8_TILE_BYTES;
}
__forceinline__ void start_weights(const Fp8LinearArgs& args, const Work& work, u32 shared) {
  const u64 policy = barrier::evict_first_policy();
  const fp8_e4m3* tiles = split_tiles(args, work, work.first_strip);
  int k = linear::first_tile(work.first_strip, work.tiles);
#pragma unroll 1
  for (int i = 0; i < min(EARLY, work.tiles); ++i, k = linear::next_tile(k, work.tiles))
    copy_weights(tiles, k, i, shared, policy);
}

// One lane: all further weights.
__forceinline__ void stream_weights(const Fp8LinearArgs& args, const Work& work, u32 shared) {
  const u64 policy = barrier::evict_first_policy();
  const fp8_e4m3* tiles = nullptr;
  for_each_stage(
      work, shared, min(EARLY, work.tiles),
      [&](int strip) { tiles = split_tiles(args, work, strip); },
      [&](const Ring& ring, int k) { copy_weights(tiles, k, ring.stage, shared, policy); });
}

// Copies the quantised input of one K tile: rows * 128 + input_scale_bytes(rows) bytes.
__forceinline__ u32 input_scale_bytes(int rows) {
  return (rows + 3) / 4 * 16;
}
__forceinline__ void copy_input_tile(const Fp8LinearArgs& args, const Work& work, u32 shared, int k,
                                     int to_tile, u32 full) {
  const i64 from = static_cast<i64>(work.k_begin + k) * args.x_rows + work.token;
  barrier::copy_bulk(shared + INPUTS + to_tile * X_TILE_BYTES, args.xq + from * FP8_TILE,
                     work.rows * FP8_TILE, full);
  barrier::copy_bulk(shared + INPUT_SCALES + to_tile * TOKENS * 4, args.x_scale + from,
                     input_scale_bytes(work.rows), full);
}

// The input warp, for input that comes quantised.
__forceinline__ void bring_input(const Fp8LinearArgs& args, const Work& work, u32 shared,
                                 int lane) {
  const u32 tile_bytes = work.rows * FP8_TILE + input_scale_bytes(work.rows);
  if constexpr (X_RESIDENT) {
    for (int i = lane; i < work.tiles; i += 32) {
      barrier::arrive_expect(shared + INPUT_FULL + i * 8, tile_bytes);
      copy_input_tile(args, work, shared, i, i, shared + INPUT_FULL + i * 8);
    }
  } else if (lane == 0) {
    for_each_stage(
        work, shared, 0, [](int) {},
        [&](const Ring& ring, int k) {
          const u32 full = shared + FULL + ring.stage * 8;
          barrier::arrive_expect(full, tile_bytes);
          copy_input_tile(args, work, shared, k, ring.stage, full);
        });
  }
}

// The math warps' way through the block's tiles.
struct Cursor {
  Ring ring;
  int strip, k, done;  // k: K tile from k_begin; done: of the strip, before this one

  __forceinline__ explicit Cursor(const Work& work)
      : strip(work.first_strip), k(linear::first_tile(work.first_strip, work.tiles)), done(0) {}
  __forceinline__ bool last_of_strip(const Work& work) const { return done + 1 == work.tiles; }
  __forceinline__ int x_tile() const { return X_RESIDENT ? k : ring.stage; }
  __forceinline__ void advance(const Work& work) {
    ring.advance();
    if (last_of_strip(work)) {
      done = 0;
      strip += work.step;
      k = linear::first_tile(strip, work.tiles);
    } else {
      ++done;
      k = linear::next_tile(k, work.tiles);
    }
  }
};

__forceinline__ void wait_for_tile(u32 shared, const Cursor& at) {
  barrier::wait(shared + FULL + at.ring.stage * 8, at.ring.parity);
  if (X_RESIDENT && !QUANTIZE) barrier::wait(shared + INPUT_FULL + at.k * 8, 0);
}

template <int COUNT>
__forceinline__ void hold_products(float (&part)[COUNT][4]) {
#pragma unroll
  for (int j = 0; j < COUNT; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      wgmma::hold(part[j][e]);
}

// Where a warpgroup finds a tile, 128 columns: its 64 weight rows and all tokens, or its 64 tokens
// and 128 weight rows (128 tokens), or all 64 tokens and its 64 weight rows.
struct Operands {
  u32 a, b;
};
__forceinline__ Operands operands_of(u32 shared, const Cursor& at, int group) {
  const u32 second_half = group * (64 * FP8_TILE);
  const u32 weights = wgmma::tile_place(shared + at.ring.stage * FP8_TILE_BYTES +
                                        (TOKENS == 128 ? 0 : second_half));
  const u32 inputs = wgmma::tile_place(shared + INPUTS + at.x_tile() * X_TILE_BYTES +
                                       (TOKENS == 128 ? second_half : 0));
  return TOKENS_AS_M ? Operands{inputs, weights} : Operands{weights, inputs};
}
// Starts part = the products of one tile, or of the first COUNT * 8 lines of its B.
template <int COUNT>
__forceinline__ void start_products(float (&part)[COUNT][4], const Operands& of) {
  hold_products(part);
  wgmma::fence();
#pragma unroll
  for (int step = 0; step < FP8_TILE / 32; ++step) {
    const u32 offset = step * wgmma::kStep32;
    wgmma::mma_e4m3<COUNT * 8>(part, wgmma::tile_descriptor(of.a + offset),
                               wgmma::tile_descriptor(of.b + offset), step > 0);
  }
  wgmma::commit();
}

// First token of a warp's fragments in the tile, where tokens are M.
__forceinline__ int warp_token(int warp) {
  return (TOKENS == 128 ? warp : warp % 4) * 16;
}

// @param lane  from 2 on: does nothing
__forceinline__ void free_stage(u32 shared, int stage, int lane) {
  if constexpr (MULTICAST) {
    __syncwarp();
    if (lane < 2) barrier::arrive_remote(shared + EMPTY + stage * 8, lane);
  } else {
    barrier::arrive_warp(shared + EMPTY + stage * 8, lane);
  }
}

// Tokens as N: sums += part, scaled; the tile's stage is free afterwards.
__forceinline__ void scale_tile(Sums& sums, Sums& part, u32 shared, const Cursor& at,
                                float weight_scale, int lane) {
  hold_products(part);
  const u32 scales = shared + INPUT_SCALES + at.x_tile() * TOKENS * 4;
#pragma unroll
  for (int j = 0; j < BLOCKS; ++j) {
    const float2 scale = ptx::load_shared(scales + j * 32 + lane % 4 * 8);
    const float even = scale.x * weight_scale, odd = scale.y * weight_scale;
    sums[j][0] = fmaf(part[j][0], even, sums[j][0]);
    sums[j][1] = fmaf(part[j][1], odd, sums[j][1]);
    sums[j][2] = fmaf(part[j][2], even, sums[j][2]);
    sums[j][3] = fmaf(part[j][3], odd, sums[j][3]);
  }
  free_stage(shared, at.ring.stage, lane);
}

// Tokens as M: a tile that is there. Its scales are in registers, so that its stage is
// free as soon as it is multiplied.
struct Tile {
  Operands operands;
  float first, second;  // scale of the lane's two tokens, the weights' included
  int stage;
};
// @param my_scales  shared address of the lane's first token's scale in tile 0
__forceinline__ Tile next_tile(u32 shared, const Cursor& at, float weight_scale, u32 my_scales,
                               int group) {
  const u32 scales = my_scales + at.x_tile() * (TOKENS * 4);
  const float first = ptx::load_shared_float(scales);
  const float second = ptx::load_shared_float(scales + 8 * 4);
  return {operands_of(shared, at, group), first * weight_scale, second * weight_scale,
          at.ring.stage};
}
// @param FIRST  of the fragments of `sums` that `part` belongs to
template <int FIRST = 0, int COUNT>
__forceinline__ void add_scaled(Sums& sums, const float (&part)[COUNT][4], const Tile& tile) {
#pragma unroll
  for (int j = 0; j < COUNT; ++j) {
    float(&sum)[4] = sums[FIRST + j];
    sum[0] = fmaf(part[j][0], tile.first, sum[0]);
    sum[1] = fmaf(part[j][1], tile.first, sum[1]);
    sum[2] = fmaf(part[j][2], tile.second, sum[2]);
    sum[3] = fmaf(part[j][3], tile.second, sum[3]);
  }
}

// Tokens as M, unsplit: the warp's 16 tokens of a strip through shared memory. Stored from
// registers, 8 bytes a lane, they kept the warp for 700 cycles a strip.
__forceinline__ void store_bulk(const linear::Strip& strip, const Work& work, const Sums& sums,
                                u32 shared, int warp, int lane) {
  const u32 rows = shared + STORES + warp * 16 * STORE_ROW;
  if (lane < 16) barrier::wait_stores_read();
  __syncwarp();
  const u32 to = rows + lane / 4 * STORE_ROW + lane % 4 * 8;
#pragma unroll
  for (int j = 0; j < BLOCKS; j += 2) {
    ptx::store_shared(to + j * 16, make_uint2(pack_bf16(sums[j][0], sums[j][1]),
                                              pack_bf16(sums[j + 1][0], sums[j + 1][1])));
    ptx::store_shared(
        to + 8 * STORE_ROW + j * 16,
        make_uint2(pack_bf16(sums[j][2], sums[j][3]), pack_bf16(sums[j + 1][2], sums[j + 1][3])));
  }
  barrier::publish_to_async_proxy();
  __syncwarp();
  const int token = work.token + warp_token(warp) + lane;
  if (lane < 16 && token < work.token + work.rows) {
    bf16* const out = strip.out + static_cast<i64>(token) * strip.out_stride +
                      (TOKENS == 128 ? 0 : warp / 4 * 64);
    barrier::store_bulk(out, rows + lane * STORE_ROW, TOKENS * 2);
    barrier::commit_stores();
  }
}

// The finished sums of a strip: joined with those of the other splits, rounded, stored.
__forceinline__ void finish_strip(const Fp8LinearArgs& args, const Work& work, Sums& sums,
                                  int index, u32 shared, int warp, int lane) {
  const linear::Strip strip = linear::strip_at<Work::K_TILES>(args, index);
  const int units = TOKENS_AS_M ? BLOCKS / VECTOR : static_cast<u32>(work.rows + 7) / 8;
  const int end = work.token + work.rows;
  const auto store = [&](int unit, const auto& owned, int stride) {
    if constexpr (TOKENS_AS_M)
      linear::store_token_fragments(strip, owned, work.token + warp_token(warp), end,
                                    (TOKENS == 128 ? 0 : warp / 4 * 64) + unit * 16, stride,
                                    static_cast<u32>(units - unit + stride - 1) / stride, lane);
    else
      linear::store_fragments(strip, owned, work.token + unit * 8, stride, end, warp * 16, lane);
  };
  if constexpr (STORE_BULK) {
    store_bulk(strip, work, sums, shared, warp, lane);
  } else if constexpr (SPLIT_K == 1) {
    constexpr int BATCH = BLOCKS < 4 ? BLOCKS : 4;
#pragma unroll
    for (int j = 0; j < BLOCKS; j += BATCH)
      if (j / VECTOR < units)
        store(j / VECTOR, reinterpret_cast<const float(&)[BATCH][4]>(sums[j]), 1);
  } else if constexpr (CLUSTERED) {
    if (BULK_EXCHANGE) ptx::sync_threads(RING_IDLE, MATH_WARPS * 32);
    barrier::wait_cluster();  // the siblings have set up their barriers, long ago
    split_k::reduce_in_cluster<SPLIT_K, VECTOR>(
        sums, shared + EXCHANGE, shared + EXCHANGED + warp * 8, BULK_EXCHANGE ? shared : 0, units,
        work.split, warp, lane, store);
    if (BULK_EXCHANGE) {  // nobody's staging goes before all have what they waited for
      barrier::arrive_cluster();
      barrier::wait_cluster();
    }
  } else {
    split_k::reduce<SPLIT_K, VECTOR>(sums, args.workspace, index * gridDim.y + blockIdx.y, units,
                                     work.split, warp, lane, store);
  }
}

template <int COUNT>
__forceinline__ void clear(float (&sums)[COUNT][4]) {
#pragma unroll
  for (int j = 0; j < COUNT; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[j][e] = 0.0f;
}

// The scales of a block's strips: of the one that is being started, and of the next, asked for
// while this one is multiplied.
struct WeightScales {
  linear::TileScales<Work::MOST_TILES> current;
  linear::TileScaleBytes<Work::MOST_TILES> upcoming;

  __forceinline__ void load(const Fp8LinearArgs& args, const Work& work, int strip, int lane) {
    const auto from = linear::strip_at<Work::K_TILES>(args, min(strip, work.strips - 1));
    upcoming.load(from.scale + work.k_begin, work.tiles, lane);
  }
  __forceinline__ WeightScales(const Fp8LinearArgs& args, const Work& work, int lane, bool dry) {
    load(args, work, work.first_strip, lane);
    if (dry) {  // the first strip is the next one
      current.clear();
      return;
    }
    const auto first = upcoming;
    if constexpr (!ONE_STRIP) load(args, work, work.first_strip + work.step, lane);
    current.take(first);
  }
  __forceinline__ void next(const Fp8LinearArgs& args, const Work& work, int strip, int lane) {
    current.take(upcoming);
    load(args, work, strip, lane);
  }
};

// Tokens as N: a group of DEPTH tiles is started, then each is scaled as it is ready.
__forceinline__ void multiply_few(const Fp8LinearArgs& args, const Work& work, u32 shared, int warp,
                                  int lane) {
  Sums sums, part[DEPTH];
#pragma unroll
  for (int d = 0; d < DEPTH; ++d)
    clear(part[d]);
  WeightScales scales(args, work, lane, false);
  if (MULTICAST) barrier::wait_cluster();  // the sibling's barriers are set up

  Cursor started(work), finished(work);
  for (int index = work.first_strip; index < work.strips; index += work.step) {
    clear(sums);
    const auto finish = [&](Sums& from) {
      scale_tile(sums, from, shared, finished, scales.current.at(finished.k), lane);
      finished.advance(work);
    };
#pragma unroll 1
    for (int tile = 0; tile < work.tiles; tile += DEPTH) {
      // What is left of an odd last group is the last tile once more, for nobody: a branch around
      // an mma would make the compiler wait for every one of them.
#pragma unroll
      for (int d = 0; d < DEPTH; ++d) {
        wait_for_tile(shared, started);
        start_products(part[d], operands_of(shared, started, warp / 4));
        if (tile + d + 1 < work.tiles) started.advance(work);
      }
      wgmma::wait<DEPTH - 1>();
      finish(part[0]);
      if constexpr (DEPTH > 1) {
        wgmma::wait<(DEPTH > 1 ? DEPTH - 2 : 0)>();
        if (tile + 1 < work.tiles) finish(part[1]);
      }
      if constexpr (DEPTH > 2) {
        wgmma::wait<1>();
        if (tile + 2 < work.tiles) finish(part[2]);
        wgmma::wait<0>();
        if (tile + 3 < work.tiles) finish(part[3]);
      }
    }
    started = finished;
    finish_strip(args, work, sums, index, shared, warp, lane);
    if constexpr (CLUSTERED) break;  // has one strip
    scales.next(args, work, index + 2 * work.step, lane);
  }
}

// Tokens as M: as soon as a tile is multiplied the next one is started, and then the first is
// scaled; across the ends of strips, too, so that the tensor cores work through scaling and
// storing.
__forceinline__ void multiply_many(const Fp8LinearArgs& args, const Work& work, u32 shared,
                                   int warp, int lane) {
  Sums sums, part[2];
  clear(part[0]);
  clear(part[1]);
  // While the first copies are on their way, two tiles are gone through dry: that fetches the
  // loop's instructions, which come as slowly as the data. Whatever is multiplied is thrown away.
  bool dry = WARM_UP;
  WeightScales scales(args, work, lane, dry);
  if (MULTICAST) barrier::wait_cluster();  // the sibling's barriers are set up

  Cursor at(work);
  // Of the first lane, so that the compiler sees that it is the same in all: then descriptors live
  // in uniform registers, which the mma takes.
  const int group = __shfl_sync(0xffffffffu, warp / 4, 0);
  const u32 my_scales = shared + INPUT_SCALES + (warp_token(warp) + lane / 4) * 4;
  const auto next = [&](bool arrives) {
    if (arrives) wait_for_tile(shared, at);
    return next_tile(shared, at, scales.current.at(at.k), my_scales, group);
  };
  // Waits for the tile in flight and puts another in its place.
  const auto exchange = [&](Sums& done, Sums& started, const Tile& tile) {
    wgmma::wait<0>();
    hold_products(done);
    start_products(started, tile.operands);
  };
  const auto finish = [&](const Sums& done, const Tile& tile) {
    free_stage(shared, tile.stage, dry ? 31 : lane);
    add_scaled(sums, done, tile);
  };
  Tile tile = next(!dry), other;
  start_products(part[0], tile.operands);
  int index = work.first_strip - (dry ? work.step : 0);
  while (true) {
    const bool last = index + work.step >= work.strips;
    const int tiles = dry ? 2 : work.tiles;
    clear(sums);
#pragma unroll 1
    for (int done = 0; done < tiles; done += 2) {
      // Behind the last tile of an odd number, and of all, it is started once more, for nobody: a
      // branch around an mma would make the compiler wait for every one of them.
      if (done + 1 < tiles && !dry) at.advance(work);
      other = next(!dry);
      exchange(part[0], part[1], other);
      finish(part[0], tile);
      const bool ends = done + 2 >= tiles;
      if (ends) scales.current.take(scales.upcoming);
      if (!dry && (!ends || !last)) at.advance(work);
      tile = next(true);
      exchange(part[1], part[0], tile);
      if (done + 1 < tiles) finish(part[1], other);
    }
    if (!dry) finish_strip(args, work, sums, index, shared, warp, lane);
    if (last || (CLUSTERED && !dry)) break;  // a cluster has one strip
    dry = false;
    index += work.step;
    if constexpr (!CLUSTERED) scales.load(args, work, index + work.step, lane);
  }
  wgmma::wait<0>();
}

// Tokens as M, K split through L2, one strip. What counts here is the end, where all blocks of the
// card exchange sums at the same time: some 3,000 cycles for 32 KB each, most of them the way
// through L2. With HALVES the last tiles, which all lie in the ring, are gone through twice, each
// time for half of the strip's rows: the sums that the other block waits for are under way while
// this block's own are finished.
__forceinline__ void multiply_split(const Fp8LinearArgs& args, const Work& work, u32 shared,
                                    int warp, int lane) {
  const WeightScales scales(args, work, lane, false);
  if (MULTICAST) barrier::wait_cluster();  // the sibling's barriers are set up

  Sums sums, part;
  clear(sums);
  clear(part);
  Cursor at(work);
  // Of the first lane, so that the compiler sees that it is the same in all: then descriptors live
  // in uniform registers, which the mma takes.
  const int group = __shfl_sync(0xffffffffu, warp / 4, 0);
  const u32 my_scales = shared + INPUT_SCALES + (warp_token(warp) + lane / 4) * 4;
  const auto tile_at = [&](const Cursor& place) {
    return next_tile(shared, place, scales.current.at(place.k), my_scales, group);
  };
  const auto arrived_tile = [&] {
    wait_for_tile(shared, at);
    return tile_at(at);
  };
  // Stages that nobody fills again are not freed: so with MULTICAST nothing is on its way to a
  // sibling that may have ended.
  const auto free_after = [&](const Tile& tile, int index) {
    if (index + STAGES < work.tiles) free_stage(shared, tile.stage, lane);
  };

  const int whole = HALVES ? max(work.tiles - HALVED_TILES, 1) : work.tiles;
  Tile tile = arrived_tile();
  start_products(part, tile.operands);
#pragma unroll 1
  for (int done = 1; done < whole; ++done) {
    at.advance(work);
    const Tile next = arrived_tile();
    wgmma::wait<0>();
    hold_products(part);
    add_scaled(sums, part, tile);
    start_products(part, next.operands);
    free_after(tile, done - 1);
    tile = next;
  }

  const linear::Strip strip = linear::strip_at<Work::K_TILES>(args, work.first_strip);
  const int out_tile = work.first_strip * gridDim.y + blockIdx.y;
  const int token = work.token + warp_token(warp), end = work.token + work.rows;
  if constexpr (HALVES) {
    constexpr int HALF = (BLOCKS + 1) / 2, OWN = BLOCKS - HALF;  // fragments; the first owned one
    constexpr u32 OWN_LINES = HALF * 8 * FP8_TILE / 16;          // behind the other block's
    float half[HALF][4];
    clear(half);
    split_k::HandOver<HALF> hand_over(args.workspace, out_tile, warp, lane);
    const auto& others = reinterpret_cast<const float(&)[HALF][4]>(sums[0]);
    const int other_split = 1 - work.split;
    if (whole == work.tiles) {  // a split of one tile
      wgmma::wait<0>();
      hold_products(part);
      add_scaled(sums, part, tile);
      hand_over.give(others, work.split);
      hand_over.ask(other_split);
    } else {
      Cursor again = at;
      at.advance(work);
      Tile next = arrived_tile();
      wgmma::wait<0>();
      hold_products(part);
      start_products(half, next.operands);
      add_scaled(sums, part, tile);
      free_after(tile, whole - 1);
      tile = next;
#pragma unroll 1
      for (int done = whole + 1; done < work.tiles; ++done) {
        at.advance(work);
        next = arrived_tile();
        wgmma::wait<0>();
        hold_products(half);
        add_scaled(sums, half, tile);
        start_products(half, next.operands);
        tile = next;
      }
      const auto own_half = [&](const Tile& of) {
        return Operands{of.operands.a, of.operands.b + OWN_LINES};
      };
      again.advance(work);
      next = tile_at(again);
      wgmma::wait<0>();
      hold_products(half);
      add_scaled(sums, half, tile);
      start_products(half, own_half(next));
      tile = next;
      hand_over.give(others, work.split);
#pragma unroll 1
      for (int done = whole + 1; done < work.tiles; ++done) {
        again.advance(work);
        next = tile_at(again);
        wgmma::wait<0>();
        hold_products(half);
        add_scaled<OWN>(sums, half, tile);
        start_products(half, own_half(next));
        tile = next;
      }
      hand_over.ask(other_split);
      wgmma::wait<0>();
      hold_products(half);
      add_scaled<OWN>(sums, half, tile);
    }
    auto& own = reinterpret_cast<float(&)[HALF][4]>(sums[OWN]);
    hand_over.add_to(own, other_split);
    linear::store_token_fragments(strip, own, token, end, work.split * (FP8_TILE / 2), 1, HALF / 2,
                                  lane);
    hand_over.put_back(other_split);
  } else {
    wgmma::wait<0>();
    hold_products(part);
    add_scaled(sums, part, tile);
    split_k::reduce_staged<SPLIT_K>(
        sums, args.workspace, out_tile, shared + warp * (BLOCKS * split_k::kFragmentBytes),
        work.split, warp, lane, [] { ptx::sync_threads(RING_IDLE, MATH_WARPS * 32); },
        [&](int unit, const float(&unit_sums)[2][4]) {
          linear::store_token_fragments(strip, unit_sums, token, end,
                                        (TOKENS == 128 ? 0 : warp / 4 * 64) + unit * 16, 1, 1,
                                        lane);
        });
  }
}

__forceinline__ void multiply(const Fp8LinearArgs& args, const Work& work, u32 shared, int warp,
                              int lane) {
  if constexpr (SPLIT_MANY)
    multiply_split(args, work, shared, warp, lane);
  else if constexpr (TOKENS_AS_M)
    multiply_many(args, work, shared, warp, lane);
  else
    multiply_few(args, work, shared, warp, lane);
  if (STORE_BULK) barrier::wait_stores();  // from memory that ends with the block
  if (MULTICAST && !SPLIT_MANY) {          // the sibling still arrives at this block's barriers
    barrier::arrive_cluster();
    barrier::wait_cluster();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fp8_linear_sm90(const __grid_constant__ Fp8LinearArgs args) {
  u8* const base = ptx::dynamic_shared_memory();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 shared = ptx::shared_address(base);
  if (warp == WEIGHT_WARP) {
    if (lane == 0) {
#pragma unroll 1
      for (int stage = 0; stage < STAGES; ++stage) {
        barrier::init(shared + FULL + stage * 8, X_RESIDENT ? 1 : 2);
        barrier::init(shared + EMPTY + stage * 8,
                      MATH_WARPS * (MULTICAST ? 2 : barrier::WARP_ARRIVALS));
      }
#pragma unroll 1
      for (int i = 0; i < RESIDENT_TILES; ++i)
        barrier::init(shared + INPUT_FULL + i * 8, 1);
      if (CLUSTERED) {
#pragma unroll
        for (int i = 0; i < MATH_WARPS; ++i)
          barrier::init(shared + EXCHANGED + i * 8, 1);
      }
      barrier::publish_init();
    }
    __syncwarp();
  }
  if (CLUSTERED || MULTICAST) barrier::arrive_cluster();
  if (warp > WEIGHT_WARP) release_successor();
  const Work work(args);
  __syncthreads();  // the barriers are set up

  if (warp >= MATH_WARPS) {
    if constexpr (MOVE_REGISTERS) ptx::give_registers<40>();
    if (warp == WEIGHT_WARP) {
      if (MULTICAST) barrier::wait_cluster();  // copies land in the sibling, too
      if (lane == 0) {
        if (EARLY > 0) start_weights(args, work, shared);
        stream_weights(args, work, shared);
      }
    } else {
      wait_for_predecessor();
      if (!QUANTIZE && warp == INPUT_WARP) bring_input(args, work, shared, lane);
    }
    __syncwarp();
  } else {
    if constexpr (MOVE_REGISTERS) ptx::take_registers<232>();
    if (CLUSTERED && lane == 0)
      barrier::arrive_expect(
          shared + EXCHANGED + warp * 8,
          split_k::cluster_bytes<SPLIT_K, VECTOR>(
              TOKENS_AS_M ? BLOCKS / VECTOR : static_cast<u32>(work.rows + 7) / 8, work.split,
              warp));
    wait_for_predecessor();
    if (QUANTIZE) {
      linear::quantize_input<TOKENS>(
          args.x + static_cast<i64>(work.token) * COLS + work.k_begin * FP8_TILE, COLS, work.rows,
          work.tiles, base + INPUTS, reinterpret_cast<float*>(base + INPUT_SCALES), threadIdx.x,
          MATH_WARPS * 32);
      barrier::publish_to_async_proxy();
      ptx::sync_threads(QUANTIZED, MATH_WARPS * 32);
    }
    multiply(args, work, shared, warp, lane);
  }
}

}  // namespace ingot::kernels
