// In front of a sublayer: (the streams from the sublayer before,) 24 mixes of a token's 4 streams,
// Sinkhorn, the weighted sum of the streams, its RMSNorm, (the FP8 quantiser). HEAD: the same in
// front of the final norm, with 4 mixes. Source: model specification sections 3.5, 3.12.
// Launch contract (host twin: launch_shape in hc_pre.space.hpp)
//   grid (SPLIT_K, token groups), all resident at once   block (32 * WARPS, and 32 unless HEAD)
//   cluster none   smem hc_pre_sizes(...).bytes, dynamic   arch sm_80 and later
//   programmatic dependent launch: yes
//
// Mixing: the fp32 weights are three bf16 pieces each, whose sum is exact, so that products with
// the bf16 streams are exact too and the tensor cores add in fp32. A block keeps the weights of its
// channels (of all four streams) in registers and walks over its group's tiles of 16 tokens (8,
// where there are no more: half of the MMA's rows stay empty); tokens are M. Its sums go to the
// workspace, where every 32-bit word is its own flag (common/split_k.cuh); nobody waits before all
// of a block's sums are on their way. Finishing: the tokens of a group are dealt to its blocks, or
// to teams of FINISHERS blocks where there are fewer tokens than blocks. A block adds a token's
// sums in the order of the splits and does the rest for all its channels, or for its share of them;
// then a team's blocks need the sum of the token's squares from each other, a second and shorter
// exchange of the same kind (common/hc_share.cuh). The streams of its first token are asked for
// before it waits, in a team before it mixes. With AFTER_SUBLAYER both phases make the new streams
// from the old ones, to the same bits, so nothing but sums goes from block to block; the finishing
// one stores them. The extra warp takes the mixes of up to 8 tokens and runs Sinkhorn, a token per
// four lanes, while the others go on; in a team the blocks take turns.
//
// A token's result depends on SPLIT_K, WARPS and LANE_CHANNELS, and on whether there is a team, not
// on its place or on other tokens. NaN and infinity stay in their token. Rows of tokens past the
// end are neither read nor written.
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "hc_pre.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "hc_pre.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(LANE_CHANNELS == 2 || LANE_CHANNELS == 4, "4 or 8 bytes of a stream per lane");
static_assert(HIDDEN % (4 * LANE_CHANNELS) == 0, "a quad of lanes takes whole chunks");
static_assert(!QUANTIZE || HIDDEN % 128 == 0, "quantised groups are whole");
static_assert((SPLIT_K & (SPLIT_K - 1)) == 0, "splits are dealt to lanes by powers of two");

constexpr int COLUMN_THREADS = 32 * WARPS;
constexpr int THREADS = COLUMN_THREADS + (HEAD ? 0 : 32);
constexpr int MIX_ROWS = HEAD ? HC_STREAMS : HC_MIXES;
constexpr int MIX_TILES = (MIX_ROWS + 7) / 8;  // of MMA columns
constexpr int QUADS = hc_pre_quads(HEAD);
constexpr int VALUES = 4 * QUADS;
constexpr int SQUARES = 8 * MIX_TILES;  // place of the sum of squares among the values
constexpr int PAIRS = LANE_CHANNELS / 2;
constexpr int CHUNK = 4 * LANE_CHANNELS;  // channels of a quad of lanes
constexpr int CHUNKS = HIDDEN / CHUNK;
constexpr int WARP_CHUNKS = (CHUNKS + SPLIT_K * WARPS - 1) / (SPLIT_K * WARPS);
constexpr bool STATIONARY = WARP_CHUNKS == 1;  // weights stay in registers
constexpr int VECTORS = HIDDEN / 8;            // of one stream
constexpr int STEPS = (VECTORS + COLUMN_THREADS - 1) / COLUMN_THREADS;
constexpr int HALVES = TILE_TOKENS / 8;  // of a tile's MMA rows
// FINISHERS > 1: a warp finishes whole groups of channels, four channels to a lane.
constexpr bool SHARED_END = FINISHERS > 1;
constexpr int GROUPS = hc_pre_groups(HIDDEN);
constexpr int BLOCK_GROUPS = (GROUPS + FINISHERS - 1) / FINISHERS;
constexpr int SHARE_STEPS = (BLOCK_GROUPS + WARPS - 1) / WARPS;
// Where half of the warps suffice for its groups, the others add the sums of all blocks.
constexpr int FIRST_GATHERING = SHARED_END && 2 * BLOCK_GROUPS <= WARPS ? BLOCK_GROUPS : 0;
constexpr int GATHERING = WARPS - FIRST_GATHERING;
constexpr int GATHER_GROUPS = 4 * GATHERING;  // of eight lanes, who add the same splits
constexpr int GATHER_STEPS = (SPLIT_K + GATHER_GROUPS - 1) / GATHER_GROUPS;
constexpr HcPreSizes SIZES = hc_pre_sizes(WARPS, HEAD, TILE_TOKENS);
static_assert(TILE_TOKENS == 8 || TILE_TOKENS == 16, "8 MMA rows or 16");
static_assert(SPLIT_K % FINISHERS == 0, "blocks are dealt to tokens");
static_assert((FINISHERS - 1) * BLOCK_GROUPS < GROUPS, "every finisher has channels");
static_assert(COLUMN_THREADS >= TILE_TOKENS * QUADS, "a thread adds at most one word per tile");
static_assert(HIDDEN % 8 == 0, "a stream is whole 16-byte vectors");
// The extra warp has its weights before the launch's turn, where the registers that all warps then
// have less in the mixing are not wanted there.
constexpr bool MIXER_FIRST = SHARED_END && TILE_TOKENS == 8;
constexpr int STREAMS_MADE = 2;  // named barrier: a warp of the columns, the extra one

}  // namespace ingot::kernels

#include "common/hc_mixer.cuh"
#include "common/hc_mixing.cuh"
#include "common/hc_share.cuh"

namespace ingot::kernels {

// The tokens that a block finishes: a walk over all warps alike.
struct Finish {
  int index;  // in the group

  __forceinline__ int token() const {
    return (static_cast<int>(blockIdx.y) + index / TILE_TOKENS * static_cast<int>(gridDim.y)) *
               TILE_TOKENS +
           index % TILE_TOKENS;
  }
};

// Column warps: the rest of one token. `parity` says which of two gather buffers.
__forceinline__ void finish_token(const HcPreArgs& args, u8* shared, int token, int parity,
                                  int warp, int lane) {
  const i64 row = static_cast<i64>(token) * HIDDEN;
  const bf16* const x_row = args.streams + row * HC_STREAMS;
  uint4 x[STEPS][HC_STREAMS], f[STEPS];
  const auto vector_of = [&](int step) {
    return step * COLUMN_THREADS + static_cast<int>(threadIdx.x);
  };
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    if (vector_of(step) >= VECTORS) continue;
#pragma unroll
    for (int s = 0; s < HC_STREAMS; ++s)
      x[step][s] = *reinterpret_cast<const uint4*>(x_row + s * HIDDEN + vector_of(step) * 8);
    if (AFTER_SUBLAYER)
      f[step] = *reinterpret_cast<const uint4*>(args.sublayer + row + vector_of(step) * 8);
  }
  if constexpr (AFTER_SUBLAYER) {
    const auto expand = hc::Expand::load(args.post_in + static_cast<i64>(token) * HC_STREAMS,
                                         args.comb_in + static_cast<i64>(token) * 16);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (vector_of(step) >= VECTORS) continue;
      hc::make_streams(x[step], f[step], expand);
#pragma unroll
      for (int s = 0; s < HC_STREAMS; ++s)
        *reinterpret_cast<uint4*>(args.streams_out + row * HC_STREAMS + s * HIDDEN +
                                  vector_of(step) * 8) = x[step][s];
    }
  }
  float* const gathered =
      reinterpret_cast<float*>(shared + SIZES.gathered) + parity * (WARPS * VALUES);
  hc::gather(args, gathered, token, 0, warp, lane);
  ptx::sync_threads(0, THREADS);

  float pre[HC_STREAMS] = {};
  const float squares = hc::add_shares(gathered, pre);
  hc::stream_weights(pre, hc::inverse_rms(squares, HC_STREAMS * HIDDEN, args.norm_epsilon), args);

  uint4 u[STEPS];
  float u_squares = 0.0f;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    if (vector_of(step) >= VECTORS) continue;
    u[step] = hc::collapse(x[step], pre, u_squares);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    u_squares += __shfl_xor_sync(0xffffffffu, u_squares, lanes);
  float* const warp_squares = reinterpret_cast<float*>(shared + SIZES.squares);
  if (lane == 0) warp_squares[warp] = u_squares;
  ptx::sync_threads(1, COLUMN_THREADS);
  u_squares = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w)
    u_squares += warp_squares[w];
  const float scale = hc::inverse_rms(u_squares, HIDDEN, args.norm_epsilon);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int vector = vector_of(step);
    const bool exists = vector < VECTORS;
    uint4 y = make_uint4(0, 0, 0, 0);
    if (exists) {
      y = hc::normalize(*reinterpret_cast<const uint4*>(args.norm + vector * 8), u[step], scale);
      *reinterpret_cast<uint4*>(args.out + row + vector * 8) = y;
    }
    if constexpr (QUANTIZE) hc::store_quantized<HIDDEN>(args, token, vector, exists, y);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    hc_pre(const __grid_constant__ HcPreArgs args) {
  u8* const shared = ptx::dynamic_shared_memory();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (args.tokens + TILE_TOKENS - 1) / TILE_TOKENS;
  const bool mixes_columns = warp < WARPS;
  const int chunk = static_cast<int>(blockIdx.x) * WARPS + warp;
  const int finisher = static_cast<int>(blockIdx.x) % FINISHERS;
  const Finish first_finished{static_cast<int>(blockIdx.x) / FINISHERS};
  hc::Weights weights;
  hc::EndWeights end_weights;
  hc::Mixer mixer;
  // The weights do not wait for the predecessor: they depend on nothing.
  if (mixes_columns) {
    if (STATIONARY) weights.load(args, chunk, lane);
    if (SHARED_END) end_weights.load(args, finisher, warp, lane);
  } else if (MIXER_FIRST) {
    mixer.load(args, lane);
  }
  release_successor();
  wait_for_predecessor();
  hc::Share share;
  if (mixes_columns) {
    hc::Rows rows;
    if constexpr (STATIONARY)
      rows.load(args, static_cast<int>(blockIdx.y) * TILE_TOKENS, chunk, lane);
    if constexpr (SHARED_END) share.load(args, first_finished.token(), finisher, warp, lane);
#pragma unroll 1
    for (int tile = blockIdx.y; tile < tiles; tile += gridDim.y)
      hc::mix_tile(args, weights, rows, shared, tile * TILE_TOKENS,
                   (tile + static_cast<int>(gridDim.y)) * TILE_TOKENS, chunk, warp, lane);
  }

  const int last = (tiles - 1 - static_cast<int>(blockIdx.y)) / static_cast<int>(gridDim.y);
  const int count = (last + 1) * TILE_TOKENS;  // of the group
  float* const matrices = reinterpret_cast<float*>(shared + SIZES.mixes);
  if (!MIXER_FIRST && !mixes_columns) mixer.load(args, lane);
  float comb[HC_STREAMS];  // a column
  int unstored = -1;       // the token whose post is in the extra warp's registers
  // `post` and `comb` may be post_in and comb_in, which another finisher reads when it makes the
  // token's streams.
  const auto store_post = [&] {
    if (unstored < 0) return;
    if constexpr (SHARED_END) ptx::sync_threads(STREAMS_MADE, 64);
    mixer.store_post(args, unstored, lane);
    unstored = -1;
  };
  const auto finish_mixes = [&] {
    mixer.balance(args, matrices, comb, lane);
    store_post();
    mixer.store_comb(args, comb, lane);
  };
  int round = 0;
#pragma unroll 1
  for (Finish at = first_finished; at.index < count; at.index += SPLIT_K / FINISHERS, ++round) {
    const int token = at.token();
    if (token >= args.tokens) break;
    if (mixes_columns) {
      if constexpr (SHARED_END) {
        if (round > 0) share.load(args, token, finisher, warp, lane);
        hc::finish_share(args, shared, share, end_weights, token, round, finisher, warp, lane);
      } else {
        finish_token(args, shared, token, round % 2, warp, lane);
      }
    } else {
      store_post();
      ptx::sync_threads(0, THREADS);
      if (round % FINISHERS != finisher) continue;  // finishers take turns
      mixer.collect(
          args,
          reinterpret_cast<const float*>(shared + SIZES.gathered) + round % 2 * (WARPS * VALUES),
          matrices, token, lane);
      unstored = token;
      if (mixer.full()) finish_mixes();
    }
  }
  if (!mixes_columns && mixer.collected > 0) finish_mixes();
}

}  // namespace ingot::kernels
