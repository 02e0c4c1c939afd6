// hc_pre of many tokens, in front of a sublayer: a block does all of its tokens' work, and nothing
// goes from block to block. Source: model specification section 3.5.
// Launch contract (host twin: launch_shape in hc_pre_wide.space.hpp)
//   grid (ceil(tokens / TOKENS))   block (8 * TOKENS * GROUPS)   cluster none
//   smem hc_pre_wide_sizes(...).bytes, dynamic   arch sm_80 and later
//   programmatic dependent launch: yes
//
// Mixing: a group of threads walks over pieces of 64 channels of all streams, which come by
// asynchronous copies with the fp32 weights of these channels. A thread makes the new streams of
// one token's 8 channels, stores them and puts them back; a warp multiplies 8 channels (16 with 16
// tokens) of all tokens, tokens as M, by the weights' three bf16 pieces, whose sum is exact, so
// that products are exact and the tensor cores add in fp32. They cut off what is behind the last
// place instead of rounding it: 768 additions in a row put a mix of 2.6 wrong by 1e-4, 48 by 9e-6.
// So the tensor cores add up four pieces only, 24 or 48 additions, whose sums are added in ordinary
// fp32. Weights are read once per block: that is 1.5 MB from L2 beside the 40 KB of a token. Then
// warps' sums are joined in their order, one warp runs Sinkhorn, a token per lane, and teams of
// four warps take the tokens: the streams once more (from L2, as far as they are still there),
// their sum, its norm, its quantised form.
//
// A ring of two pieces has nothing under way while a group makes its streams, unless the next piece
// is asked for first (COPY_FIRST), behind a barrier of its own.
//
// Bytes of a token at 4,096 channels: 40 KB read and 32 KB written, 32 KB read again, 8 to 17 KB
// written; of 4,096 tokens 0.46 to 0.51 GB, 100 to 113 us at 4.5 TB/s.
//
// A token's result depends on the parameters, not on its place or on other tokens. NaN and infinity
// stay in their token. Rows of tokens past the end are neither read nor written.
#include "common/bf16.cuh"
#include "common/hc_finish.cuh"
#include "common/hyper_connection.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "hc_pre_wide.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "hc_pre_wide.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 16 || TOKENS == 32, "tokens fill the M of one or two mmas");
static_assert(8 * TOKENS * GROUPS <= 512, "a block has at most 512 threads");
static_assert(STAGES >= 2, "a ring has two stages at least");
static_assert(HIDDEN % 128 == 0, "quantised groups are whole");

constexpr int WARPS = TOKENS / 4;  // of a group
constexpr int GROUP_THREADS = 32 * WARPS, THREADS = GROUPS * GROUP_THREADS;
constexpr int PIECES = HIDDEN / HC_WIDE_CHANNELS;
constexpr int SLICES = 8 / WARPS;           // 8 channels each, of a warp in a piece
constexpr int LINE = 2 * HC_WIDE_CHANNELS;  // bytes of a stream of a token in a stage
constexpr int LINES = HC_STREAMS + (AFTER_SUBLAYER ? 1 : 0);  // of a token
constexpr int WEIGHT_LINE = 4 * HC_WIDE_CHANNELS;             // of a mix and a stream
constexpr int M_TILES = TOKENS / 16, N_TILES = HC_MIXES / 8;
constexpr int CHAIN = 4;              // pieces whose products the tensor cores add up by themselves
constexpr int TOTALS = HC_MIXES + 1;  // of a token: the mixes, the sum of squares
constexpr int TEAM_THREADS = 128, TEAMS = THREADS / TEAM_THREADS, TEAM_WARPS = TEAM_THREADS / 32;
constexpr int VECTORS = HIDDEN / 8;
constexpr int STEPS = (VECTORS + TEAM_THREADS - 1) / TEAM_THREADS;
constexpr HcPreWideSizes SIZES = hc_pre_wide_sizes(TOKENS, GROUPS, STAGES, AFTER_SUBLAYER);

// What a thread of a group does beside multiplying: one token's 8 channels of each piece.
struct Share {
  int thread, local, chunk, token;  // local: token of the block; chunk: 8 channels of the piece
  bool exists;

  __forceinline__ explicit Share(const HcPreArgs& args)
      : thread(static_cast<int>(threadIdx.x) % GROUP_THREADS),
        local(thread / 8),
        chunk(thread % 8),
        token(static_cast<int>(blockIdx.x) * TOKENS + local),
        exists(token < args.tokens) {}
  // Chunks are swizzled by the token: the tensor cores' reads meet no bank twice.
  __forceinline__ u32 place(u32 stage) const {
    return stage + local * (LINES * LINE) + ((chunk ^ (local % 8)) * 16);
  }
};

__forceinline__ void copy_weights(const HcPreArgs& args, u32 stage, int piece, int thread) {
  const int chunk = thread % 16, line = thread / 16;
  const float* const from = args.fn + piece * HC_WIDE_CHANNELS + chunk * 4;
#pragma unroll
  for (int i = line; i < HC_MIXES * HC_STREAMS; i += GROUP_THREADS / 16) {
    const int mix = i / HC_STREAMS;  // its 32-byte pieces are swizzled by it
    ptx::copy16_async(
        stage + SIZES.weights + i * WEIGHT_LINE + ((chunk / 2 ^ (mix % 8)) * 32) + chunk % 2 * 16,
        from + static_cast<i64>(i) * HIDDEN);
  }
}

__forceinline__ void copy_streams(const HcPreArgs& args, u32 stage, int piece, const Share& share) {
  if (!share.exists) return;
  const i64 token = share.token;
  const int channel = piece * HC_WIDE_CHANNELS + share.chunk * 8;
  const u32 to = share.place(stage);
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s)
    ptx::copy16_async(to + s * LINE, args.streams + (token * HC_STREAMS + s) * HIDDEN + channel);
  if (AFTER_SUBLAYER)
    ptx::copy16_async(to + HC_STREAMS * LINE, args.sublayer + token * HIDDEN + channel);
}

// The new streams of this thread's channels, to memory and back to the stage.
// @return the sum of their squares
__forceinline__ float make_piece(const HcPreArgs& args, u32 stage, int piece, const Share& share,
                                 const hc::Expand& expand) {
  const u32 at = share.place(stage);
  uint4 x[HC_STREAMS];
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s)
    x[s] = ptx::load_shared_words(at + s * LINE);
  if constexpr (AFTER_SUBLAYER) {
    hc::make_streams(x, ptx::load_shared_words(at + HC_STREAMS * LINE), expand);
    bf16* const to = args.streams_out + static_cast<i64>(share.token) * (HC_STREAMS * HIDDEN) +
                     piece * HC_WIDE_CHANNELS + share.chunk * 8;
#pragma unroll
    for (int s = 0; s < HC_STREAMS; ++s) {
      *reinterpret_cast<uint4*>(to + s * HIDDEN) = x[s];
      ptx::store_shared(at + s * LINE, x[s]);
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s) {
    const u32 pairs[4] = {x[s].x, x[s].y, x[s].z, x[s].w};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float low = low_to_float(pairs[p]), high = high_to_float(pairs[p]);
      squares = fmaf(low, low, fmaf(high, high, squares));
    }
  }
  return squares;
}

// Two fp32 weights as three pairs of bf16 whose sums they are: 8 bits of each at a time.
__forceinline__ void split(u32 (&pieces)[3], float2 weights) {
  constexpr u32 UPPER_HALVES = 0x7632;
  float low = weights.x, high = weights.y;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const u32 bits_low = __float_as_uint(low), bits_high = __float_as_uint(high);
    pieces[i] = ptx::permute(bits_low, bits_high, UPPER_HALVES);
    low -= __uint_as_float(bits_low & 0xffff0000u);
    high -= __uint_as_float(bits_high & 0xffff0000u);
  }
}

// sums += this warp's channels of a piece, all tokens.
__forceinline__ void multiply_piece(float (&sums)[M_TILES][N_TILES][4], u32 stage, int warp,
                                    int lane) {
  const u32 token_line = stage + (lane % 16 * LINES + lane / 16) * LINE;
  const u32 weight_line = stage + SIZES.weights + lane / 4 * (HC_STREAMS * WEIGHT_LINE);
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    const int chunk = warp + slice * WARPS;
    const u32 token_chunk = token_line + ((chunk ^ (lane % 8)) * 16);
    const u32 weight_chunk = weight_line + ((chunk ^ (lane / 4)) * 32) + lane % 4 * 8;
#pragma unroll
    for (int s = 0; s < HC_STREAMS; s += 2) {
      u32 a[M_TILES][4];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m)
        ptx::load_matrices(a[m], token_chunk + (m * 16 * LINES + s) * LINE);
      u32 b[N_TILES][2][3];
#pragma unroll
      for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          split(b[n][half], ptx::load_shared(weight_chunk + n * (8 * HC_STREAMS * WEIGHT_LINE) +
                                             (s + half) * WEIGHT_LINE));
#pragma unroll
      for (int piece = 2; piece >= 0; --piece)
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
          for (int m = 0; m < M_TILES; ++m)
            mma::bf16(sums[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[n][0][piece],
                      b[n][1][piece]);
    }
  }
}

// sums += chain, rounded to nearest; the chain starts again.
__forceinline__ void end_chain(float (&sums)[M_TILES][N_TILES][4],
                               float (&chain)[M_TILES][N_TILES][4]) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[m][n][e] += chain[m][n][e];
        chain[m][n][e] = 0.0f;
      }
}

// All mixes of the block's tokens, to SIZES.totals.
__forceinline__ void mix(const HcPreArgs& args, u8* shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int group = thread / GROUP_THREADS, warp = thread / 32 % WARPS;
  const int pieces = (PIECES - group + GROUPS - 1) / GROUPS;  // group, group + GROUPS, ...
  const Share share(args);
  const u32 ring = ptx::shared_address(shared) + group * (STAGES * SIZES.stage);
  const auto piece_of = [&](int i) { return group + i * GROUPS; };
  // The weights do not wait for the predecessor: they depend on nothing.
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i)
    if (i < pieces) copy_weights(args, ring + i * SIZES.stage, piece_of(i), share.thread);
  release_successor();
  wait_for_predecessor();
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) {
    if (i < pieces) copy_streams(args, ring + i * SIZES.stage, piece_of(i), share);
    ptx::commit_copies();  // the first of these groups holds all the weights above
  }
  hc::Expand expand{};
  if (AFTER_SUBLAYER && share.exists)
    expand = hc::Expand::load(args.post_in + static_cast<i64>(share.token) * HC_STREAMS,
                              args.comb_in + static_cast<i64>(share.token) * 16);

  float sums[M_TILES][N_TILES][4] = {}, chain[M_TILES][N_TILES][4] = {};
  float squares = 0.0f;
  u32 stage = ring, ahead = ring + (STAGES - 1) * SIZES.stage;
  const auto next = [&](u32 at) {
    return at == ring + (STAGES - 1) * SIZES.stage ? ring : at + SIZES.stage;
  };
#pragma unroll 1
  for (int i = 0; i < pieces; ++i) {
    const auto copy_next = [&] {
      if (i + STAGES - 1 < pieces) {
        copy_weights(args, ahead, piece_of(i + STAGES - 1), share.thread);
        copy_streams(args, ahead, piece_of(i + STAGES - 1), share);
      }
      ptx::commit_copies();
    };
    ptx::wait_copies<STAGES - 2>();
    if (COPY_FIRST) {
      ptx::sync_threads(1 + group, GROUP_THREADS);  // the piece before is done
      copy_next();
    }
    if (share.exists) squares += make_piece(args, stage, piece_of(i), share, expand);
    ptx::sync_threads(1 + group, GROUP_THREADS);  // this piece is there; the one before is done
    if (!COPY_FIRST) copy_next();
    multiply_piece(chain, stage, warp, lane);
    if (i % CHAIN == CHAIN - 1 || i == pieces - 1) end_chain(sums, chain);
    stage = next(stage);
    ahead = next(ahead);
  }
  squares += __shfl_xor_sync(0xffffffffu, squares, 1);
  squares += __shfl_xor_sync(0xffffffffu, squares, 2);
  squares += __shfl_xor_sync(0xffffffffu, squares, 4);

  ptx::wait_copies<0>();
  __syncthreads();  // nobody reads the rings any more
  float* const partial = reinterpret_cast<float*>(shared) + thread / 32 * (TOKENS * HC_MIXES);
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(partial + (m * 16 + half * 8 + lane / 4) * HC_MIXES + n * 8 +
                                   lane % 4 * 2) =
            make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
  float* const of_squares = reinterpret_cast<float*>(shared + SIZES.squares);
  if (share.chunk == 0) of_squares[group * TOKENS + share.local] = squares;
  __syncthreads();
  float* const totals = reinterpret_cast<float*>(shared + SIZES.totals);
  for (int i = thread; i < TOKENS * HC_MIXES; i += THREADS) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < GROUPS * WARPS; ++w)
      sum += reinterpret_cast<float*>(shared)[w * (TOKENS * HC_MIXES) + i];
    totals[i / HC_MIXES * TOTALS + i % HC_MIXES] = sum;
  }
  if (thread < TOKENS) {
    float sum = of_squares[thread];
#pragma unroll
    for (int group = 1; group < GROUPS; ++group)
      sum += of_squares[group * TOKENS + thread];
    totals[thread * TOTALS + HC_MIXES] = sum;
  }
  __syncthreads();
}

// A team: the rest of one token. `parity` says which of two buffers.
__forceinline__ void finish_token(const HcPreArgs& args, u8* shared, int token, const float* totals,
                                  int parity) {
  const int team = static_cast<int>(threadIdx.x) / TEAM_THREADS;
  const int thread = static_cast<int>(threadIdx.x) % TEAM_THREADS;
  const i64 row = static_cast<i64>(token) * HIDDEN;
  const bf16* const from = (AFTER_SUBLAYER ? args.streams_out : args.streams) + row * HC_STREAMS;
  float pre[HC_STREAMS] = {totals[0], totals[1], totals[2], totals[3]};
  hc::stream_weights(pre, hc::inverse_rms(totals[HC_MIXES], HC_STREAMS * HIDDEN, args.norm_epsilon),
                     args);
  uint4 u[STEPS];
  float squares = 0.0f;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int vector = step * TEAM_THREADS + thread;
    if (vector >= VECTORS) continue;
    uint4 x[HC_STREAMS];
#pragma unroll
    for (int s = 0; s < HC_STREAMS; ++s)
      x[s] = *reinterpret_cast<const uint4*>(from + s * HIDDEN + vector * 8);
    u[step] = hc::collapse(x, pre, squares);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
  float* const of_warps =
      reinterpret_cast<float*>(shared + SIZES.norms) + parity * (THREADS / 32) + team * TEAM_WARPS;
  if (thread % 32 == 0) of_warps[thread / 32] = squares;
  ptx::sync_threads(1 + team, TEAM_THREADS);
  squares = (of_warps[0] + of_warps[1]) + (of_warps[2] + of_warps[3]);
  const float scale = hc::inverse_rms(squares, HIDDEN, args.norm_epsilon);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int vector = step * TEAM_THREADS + thread;
    const bool exists = vector < VECTORS;
    uint4 y = make_uint4(0, 0, 0, 0);
    if (exists) {
      y = hc::normalize(*reinterpret_cast<const uint4*>(args.norm + vector * 8), u[step], scale);
      *reinterpret_cast<uint4*>(args.out + row + vector * 8) = y;
    }
    hc::store_quantized<HIDDEN>(args, token, vector, exists, y);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    hc_pre_wide(const __grid_constant__ HcPreArgs args) {
  u8* const shared = ptx::dynamic_shared_memory();
  mix(args, shared);
  const int first = static_cast<int>(blockIdx.x) * TOKENS;
  const int count = min(TOKENS, args.tokens - first), thread = static_cast<int>(threadIdx.x);
  const float* const totals = reinterpret_cast<const float*>(shared + SIZES.totals);
  if (thread < count) {
    const float* const own = totals + thread * TOTALS;
    hc::store_mix(args, own, hc::inverse_rms(own[HC_MIXES], HC_STREAMS * HIDDEN, args.norm_epsilon),
                  first + thread);
  }
  __syncwarp();
  int parity = 0;
#pragma unroll 1
  for (int local = thread / TEAM_THREADS; local < count; local += TEAMS, parity ^= 1)
    finish_token(args, shared, first + local, totals + local * TOTALS, parity);
}

}  // namespace ingot::kernels
