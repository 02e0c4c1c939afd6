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
// channels (of all four streams) in registers and walks over its group's tiles of 16 tokens; tokens
// are M. Its sums go to the workspace, where every 32-bit word is its own flag
// (common/split_k.cuh); nobody waits before all of a block's sums are on their way. Finishing: the
// tokens of a group are dealt to its blocks. A block adds a token's sums in the order of the splits
// and does the rest for all its channels; the streams of its first token are asked for before it
// waits. With AFTER_SUBLAYER both phases make the new streams from the old ones, to the same bits,
// so nothing but sums goes from block to block; the finishing one stores them. The extra warp takes
// the mixes of up to 32 tokens and runs Sinkhorn, a token per lane, while the others go on.
//
// A token's result depends on SPLIT_K, WARPS and LANE_CHANNELS, not on its place or on other
// tokens. NaN and infinity stay in their token. Rows of tokens past the end are neither read nor
// written.
#include "common/bf16.cuh"
#include "common/hc_finish.cuh"
#include "common/hyper_connection.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/split_k.cuh"
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
constexpr int GATHER_GROUPS = COLUMN_THREADS / 8;
constexpr int GATHER_STEPS = (SPLIT_K + GATHER_GROUPS - 1) / GATHER_GROUPS;
constexpr HcPreSizes SIZES = hc_pre_sizes(WARPS, HEAD);
static_assert(COLUMN_THREADS >= HC_TOKENS * QUADS, "a thread adds at most one word per tile");
static_assert(HIDDEN % 8 == 0, "a stream is whole 16-byte vectors");

// One lane's weights of one chunk, as MMA fragments: three pieces of each.
struct Weights {
  u32 piece[PAIRS][HC_STREAMS][MIX_TILES][3];

  __forceinline__ void load(const HcPreArgs& args, int chunk, int lane) {
    const int channel = chunk * CHUNK + lane % 4 * LANE_CHANNELS;
#pragma unroll
    for (int n = 0; n < MIX_TILES; ++n) {
      const int row = n * 8 + lane / 4;
      const bool exists = row < MIX_ROWS && chunk < CHUNKS;
#pragma unroll
      for (int s = 0; s < HC_STREAMS; ++s) {
        float w[LANE_CHANNELS] = {};
        const float* from =
            args.fn + static_cast<i64>(row) * (HC_STREAMS * HIDDEN) + s * HIDDEN + channel;
        if (exists) {
          if constexpr (LANE_CHANNELS == 4) {
            const float4 four = *reinterpret_cast<const float4*>(from);
            w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
          } else {
            const float2 two = *reinterpret_cast<const float2*>(from);
            w[0] = two.x, w[1] = two.y;
          }
        }
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
          float low = w[2 * p], high = w[2 * p + 1];
#pragma unroll
          for (int i = 0; i < 3; ++i) {
            const u32 bits = pack_bf16(low, high);
            piece[p][s][n][i] = bits;
            low -= low_to_float(bits);
            high -= high_to_float(bits);
          }
        }
      }
    }
  }
};

// A token row's channel pairs of this lane, all streams; zero past the end. Loaded first, made into
// the new streams later: the loads of one tile are in flight while another is multiplied.
struct Row {
  u32 pairs[PAIRS][HC_STREAMS];
  u32 f[PAIRS];  // of the sublayer
  hc::Expand expand;

  __forceinline__ void load(const HcPreArgs& args, int token, int chunk, int lane) {
    const bool exists = token < args.tokens && chunk < CHUNKS;
    const int channel = chunk * CHUNK + lane % 4 * LANE_CHANNELS;
#pragma unroll
    for (int s = 0; s < HC_STREAMS; ++s) {
      u32 words[PAIRS] = {};
      if (exists)
        load_pairs(words,
                   args.streams + (static_cast<i64>(token) * HC_STREAMS + s) * HIDDEN + channel);
#pragma unroll
      for (int p = 0; p < PAIRS; ++p)
        pairs[p][s] = words[p];
    }
    if constexpr (AFTER_SUBLAYER) {
      // A row that is not there takes the last one's weights; its streams and its output are zero.
      const i64 weights_of = min(token, args.tokens - 1);
#pragma unroll
      for (int p = 0; p < PAIRS; ++p)
        f[p] = 0;
      if (exists) load_pairs(f, args.sublayer + static_cast<i64>(token) * HIDDEN + channel);
      expand =
          hc::Expand::load(args.post_in + weights_of * HC_STREAMS, args.comb_in + weights_of * 16);
    }
  }
  __forceinline__ void make_streams() {
    if constexpr (AFTER_SUBLAYER) {
#pragma unroll
      for (int p = 0; p < PAIRS; ++p)
        expand.apply(pairs[p], f[p]);
    }
  }
  static __forceinline__ void load_pairs(u32 (&words)[PAIRS], const bf16* from) {
    if constexpr (PAIRS == 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      words[0] = two.x, words[1] = two.y;
    } else {
      words[0] = *reinterpret_cast<const u32*>(from);
    }
  }
  __forceinline__ float squares() const {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PAIRS; ++p)
#pragma unroll
      for (int s = 0; s < HC_STREAMS; ++s) {
        const float low = low_to_float(pairs[p][s]), high = high_to_float(pairs[p][s]);
        sum = fmaf(low, low, fmaf(high, high, sum));
      }
    return sum;
  }
};

// The two token rows of this lane, of tokens first .. first + 15.
struct Rows {
  Row upper, lower;

  __forceinline__ void load(const HcPreArgs& args, int first, int chunk, int lane) {
    upper.load(args, first + lane / 4, chunk, lane);
    lower.load(args, first + lane / 4 + 8, chunk, lane);
  }
};

// This block's part of the sums of tokens first .. first + 15, to the workspace.
// @param rows  STATIONARY: these tokens' rows; the next tile's when this returns
__forceinline__ void mix_tile(const HcPreArgs& args, const Weights& kept, Rows& rows, u8* shared,
                              int first, int next, int chunk, int warp, int lane) {
  float sums[MIX_TILES][4] = {};
  float squares[2] = {};
  const auto multiply = [&](Rows& tile, const Weights& weights) {
    tile.upper.make_streams();
    tile.lower.make_streams();
    squares[0] += tile.upper.squares();
    squares[1] += tile.lower.squares();
#pragma unroll
    for (int p = 0; p < PAIRS; ++p)
#pragma unroll
      for (int s = 0; s < HC_STREAMS; s += 2)
#pragma unroll
        for (int piece = 2; piece >= 0; --piece)
#pragma unroll
          for (int n = 0; n < MIX_TILES; ++n)
            mma::bf16(sums[n], tile.upper.pairs[p][s], tile.lower.pairs[p][s],
                      tile.upper.pairs[p][s + 1], tile.lower.pairs[p][s + 1],
                      weights.piece[p][s][n][piece], weights.piece[p][s + 1][n][piece]);
  };
  if constexpr (STATIONARY) {
    Rows current = rows;
    rows.load(args, next, chunk, lane);
    multiply(current, kept);
  } else {
#pragma unroll 1
    for (int i = 0; i < WARP_CHUNKS; ++i) {
      const int at = chunk + i * (SPLIT_K * WARPS);
      Weights fresh;
      fresh.load(args, at, lane);
      rows.load(args, first, at, lane);
      multiply(rows, fresh);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    squares[half] += __shfl_xor_sync(0xffffffffu, squares[half], 1);
    squares[half] += __shfl_xor_sync(0xffffffffu, squares[half], 2);
  }
  float* const partial = reinterpret_cast<float*>(shared + SIZES.partial);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* const to = partial + (warp * HC_TOKENS + lane / 4 + 8 * half) * VALUES;
#pragma unroll
    for (int n = 0; n < MIX_TILES; ++n)
      *reinterpret_cast<float2*>(to + n * 8 + lane % 4 * 2) =
          make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
    to[SQUARES + lane % 4] = lane % 4 == 0 ? squares[half] : 0.0f;
  }
  ptx::sync_threads(1, COLUMN_THREADS);
  const int row = static_cast<int>(threadIdx.x) / QUADS, quad = threadIdx.x % QUADS;
  if (row < HC_TOKENS && first + row < args.tokens) {
    float total[4] = {};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float4 four =
          *reinterpret_cast<const float4*>(partial + (w * HC_TOKENS + row) * VALUES + quad * 4);
      total[0] += four.x, total[1] += four.y, total[2] += four.z, total[3] += four.w;
    }
    const i64 at = (static_cast<i64>(first + row) * SPLIT_K + blockIdx.x) * QUADS + quad;
    ptx::store_relaxed(static_cast<char*>(args.workspace) + at * 16, split_k::as_words(total));
  }
  ptx::sync_threads(1, COLUMN_THREADS);
}

// Adds a token's sums over the splits; leaves one share per warp in shared memory and the workspace
// as it was.
__forceinline__ void gather(const HcPreArgs& args, float* to, int token, int warp, int lane) {
  const int quad = lane % 8, group = static_cast<int>(threadIdx.x) / 8;
  char* const from =
      static_cast<char*>(args.workspace) + (static_cast<i64>(token) * SPLIT_K * QUADS + quad) * 16;
  uint4 words[GATHER_STEPS];
  const auto wanted = [&](int i) { return quad < QUADS && group + i * GATHER_GROUPS < SPLIT_K; };
#pragma unroll
  for (int i = 0; i < GATHER_STEPS; ++i)
    words[i] =
        make_uint4(split_k::kNothing, split_k::kNothing, split_k::kNothing, split_k::kNothing);
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int i = 0; i < GATHER_STEPS; ++i)
      if (wanted(i) && split_k::incomplete(words[i])) {
        words[i] = ptx::load_relaxed(from + (group + i * GATHER_GROUPS) * (QUADS * 16));
        missing = true;
      }
  } while (missing);
  __syncwarp();
  float sum[4] = {};
#pragma unroll
  for (int i = 0; i < GATHER_STEPS; ++i)
    if (wanted(i)) {
      split_k::add(sum, words[i]);
      ptx::store_relaxed(
          from + (group + i * GATHER_GROUPS) * (QUADS * 16),
          make_uint4(split_k::kNothing, split_k::kNothing, split_k::kNothing, split_k::kNothing));
    }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    sum[e] += __shfl_xor_sync(0xffffffffu, sum[e], 8);
    sum[e] += __shfl_xor_sync(0xffffffffu, sum[e], 16);
  }
  if (lane < QUADS)
    *reinterpret_cast<float4*>(to + warp * VALUES + lane * 4) =
        make_float4(sum[0], sum[1], sum[2], sum[3]);
}

// The tokens that a block finishes: a walk over all warps alike.
struct Finish {
  int index;  // in the group

  __forceinline__ int token() const {
    return (static_cast<int>(blockIdx.y) + index / HC_TOKENS * static_cast<int>(gridDim.y)) *
               HC_TOKENS +
           index % HC_TOKENS;
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
  gather(args, gathered, token, warp, lane);
  ptx::sync_threads(0, THREADS);

  float pre[HC_STREAMS] = {};
  float squares = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    const float4 four = *reinterpret_cast<const float4*>(gathered + w * VALUES);
    pre[0] += four.x, pre[1] += four.y, pre[2] += four.z, pre[3] += four.w;
    squares += gathered[w * VALUES + SQUARES];
  }
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

// The extra warp: post and comb of the tokens whose mixes it has collected, one per lane.
__forceinline__ void finish_mixes(const HcPreArgs& args, const float* mixes, int token, int lane,
                                  int count) {
  if (lane < count) {
    const float* const m = mixes + lane * (VALUES + 1);
    hc::store_mix(args, m, hc::inverse_rms(m[SQUARES], HC_STREAMS * HIDDEN, args.norm_epsilon),
                  token);
  }
  __syncwarp();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    hc_pre(const __grid_constant__ HcPreArgs args) {
  u8* const shared = ptx::dynamic_shared_memory();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (args.tokens + HC_TOKENS - 1) / HC_TOKENS;
  const bool mixes_columns = warp < WARPS;
  const int chunk = static_cast<int>(blockIdx.x) * WARPS + warp;
  Weights weights;
  // The weights do not wait for the predecessor: they depend on nothing.
  if (STATIONARY && mixes_columns) weights.load(args, chunk, lane);
  release_successor();
  wait_for_predecessor();
  if (mixes_columns) {
    Rows rows;
    if constexpr (STATIONARY)
      rows.load(args, static_cast<int>(blockIdx.y) * HC_TOKENS, chunk, lane);
#pragma unroll 1
    for (int tile = blockIdx.y; tile < tiles; tile += gridDim.y)
      mix_tile(args, weights, rows, shared, tile * HC_TOKENS,
               (tile + static_cast<int>(gridDim.y)) * HC_TOKENS, chunk, warp, lane);
  }

  const int last = (tiles - 1 - static_cast<int>(blockIdx.y)) / static_cast<int>(gridDim.y);
  const int count = (last + 1) * HC_TOKENS;  // of the group
  int parity = 0, collected = 0, mine = 0;
  float* const mixes = reinterpret_cast<float*>(shared + SIZES.mixes);
#pragma unroll 1
  for (Finish at{static_cast<int>(blockIdx.x)}; at.index < count; at.index += SPLIT_K) {
    const int token = at.token();
    if (token >= args.tokens) continue;
    if (mixes_columns) {
      finish_token(args, shared, token, parity, warp, lane);
    } else {
      ptx::sync_threads(0, THREADS);
      const float* const gathered =
          reinterpret_cast<float*>(shared + SIZES.gathered) + parity * (WARPS * VALUES);
      if (lane < VALUES) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w)
          sum += gathered[w * VALUES + lane];
        mixes[collected * (VALUES + 1) + lane] = sum;
      }
      if (lane == collected) mine = token;
      __syncwarp();
      if (++collected == HC_ROUND) {
        finish_mixes(args, mixes, mine, lane, collected);
        collected = 0;
      }
    }
    parity ^= 1;
  }
  if (!mixes_columns && collected > 0) finish_mixes(args, mixes, mine, lane, collected);
}

}  // namespace ingot::kernels
