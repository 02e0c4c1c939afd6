#pragma once
// A block's part of the mixes of a hyper-connection, and the sum of all blocks' parts. The family's
// parameters and what hc_pre.cuh derives from them are in scope.
// Source: model specification section 3.5.
#include "common/bf16.cuh"
#include "common/hyper_connection.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/split_k.cuh"

namespace ingot::kernels::hc {

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
  Expand expand;

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
      expand = Expand::load(args.post_in + weights_of * HC_STREAMS, args.comb_in + weights_of * 16);
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

// The token rows of this lane, of tokens first .. first + TILE_TOKENS - 1.
struct Rows {
  Row half[HALVES];

  __forceinline__ void load(const HcPreArgs& args, int first, int chunk, int lane) {
#pragma unroll
    for (int h = 0; h < HALVES; ++h)
      half[h].load(args, first + lane / 4 + 8 * h, chunk, lane);
  }
};

// Where block `split` hands its sums to finisher `finisher` of a token.
__forceinline__ char* sums_at(const HcPreArgs& args, int token, int finisher, int split) {
  return static_cast<char*>(args.workspace) +
         ((static_cast<i64>(token) * FINISHERS + finisher) * SPLIT_K + split) * (QUADS * 16);
}

// This block's part of the sums of a tile's tokens, first and on, to the workspace.
// @param rows  STATIONARY: these tokens' rows; the next tile's when this returns
__forceinline__ void mix_tile(const HcPreArgs& args, const Weights& kept, Rows& rows, u8* shared,
                              int first, int next, int chunk, int warp, int lane) {
  // Of few tokens two chains of MMAs, half as long: their latency is what counts.
  constexpr int CHAINS = SHARED_END && TILE_TOKENS == 8 && PAIRS == 1 ? 2 : 1;
  float sums[CHAINS][MIX_TILES][4] = {};
  float squares[HALVES] = {};
  const auto multiply = [&](Rows& tile, const Weights& weights) {
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
      tile.half[h].make_streams();
      squares[h] += tile.half[h].squares();
    }
    const auto pair = [&](int h, int p, int s) {
      return h < HALVES ? tile.half[h < HALVES ? h : 0].pairs[p][s] : 0u;
    };
#pragma unroll
    for (int p = 0; p < PAIRS; ++p)
#pragma unroll
      for (int s = 0; s < HC_STREAMS; s += 2)
#pragma unroll
        for (int piece = 2; piece >= 0; --piece)
#pragma unroll
          for (int n = 0; n < MIX_TILES; ++n)
            mma::bf16(sums[s / 2 % CHAINS][n], pair(0, p, s), pair(1, p, s), pair(0, p, s + 1),
                      pair(1, p, s + 1), weights.piece[p][s][n][piece],
                      weights.piece[p][s + 1][n][piece]);
  };
  if constexpr (STATIONARY) {
    if constexpr (!SHARED_END) {
      Rows current = rows;
      rows.load(args, next, chunk, lane);
      multiply(current, kept);
    } else {
      multiply(rows, kept);
      if (next < args.tokens) rows.load(args, next, chunk, lane);
    }
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
  for (int half = 0; half < HALVES; ++half) {
    squares[half] += __shfl_xor_sync(0xffffffffu, squares[half], 1);
    squares[half] += __shfl_xor_sync(0xffffffffu, squares[half], 2);
  }
  if constexpr (CHAINS == 2) {
#pragma unroll
    for (int n = 0; n < MIX_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[0][n][i] += sums[1][n][i];
  }
  float* const partial = reinterpret_cast<float*>(shared + SIZES.partial);
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    float* const to = partial + (warp * TILE_TOKENS + lane / 4 + 8 * half) * VALUES;
#pragma unroll
    for (int n = 0; n < MIX_TILES; ++n)
      *reinterpret_cast<float2*>(to + n * 8 + lane % 4 * 2) =
          make_float2(sums[0][n][2 * half], sums[0][n][2 * half + 1]);
    to[SQUARES + lane % 4] = lane % 4 == 0 ? squares[half] : 0.0f;
  }
  ptx::sync_threads(1, COLUMN_THREADS);
  const int row = static_cast<int>(threadIdx.x) / QUADS, quad = threadIdx.x % QUADS;
  if (row < TILE_TOKENS && first + row < args.tokens) {
    float total[4] = {};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float4 four =
          *reinterpret_cast<const float4*>(partial + (w * TILE_TOKENS + row) * VALUES + quad * 4);
      total[0] += four.x, total[1] += four.y, total[2] += four.z, total[3] += four.w;
    }
    char* const to = sums_at(args, first + row, 0, static_cast<int>(blockIdx.x)) + quad * 16;
#pragma unroll
    for (int finisher = 0; finisher < FINISHERS; ++finisher)
      ptx::store_relaxed(to + finisher * (SPLIT_K * QUADS * 16), split_k::as_words(total));
  }
  if (!SHARED_END || next < args.tokens) ptx::sync_threads(1, COLUMN_THREADS);
}

// The GATHERING warps: adds a token's sums over the splits; leaves one share per warp in shared
// memory and the workspace as it was.
__forceinline__ void gather(const HcPreArgs& args, float* to, int token, int finisher, int warp,
                            int lane) {
  const int quad = lane % 8, group = (warp - FIRST_GATHERING) * 4 + lane / 8;
  char* const from = sums_at(args, token, finisher, 0) + quad * 16;
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
    *reinterpret_cast<float4*>(to + (warp - FIRST_GATHERING) * VALUES + lane * 4) =
        make_float4(sum[0], sum[1], sum[2], sum[3]);
}

// The sums of a token's first mixes and of its squares, from what gather() left.
__forceinline__ float add_shares(const float* gathered, float (&pre)[HC_STREAMS]) {
  float squares = 0.0f;
#pragma unroll
  for (int w = 0; w < GATHERING; ++w) {
    const float4 four = *reinterpret_cast<const float4*>(gathered + w * VALUES);
    pre[0] += four.x, pre[1] += four.y, pre[2] += four.z, pre[3] += four.w;
    squares += gathered[w * VALUES + SQUARES];
  }
  return squares;
}

}  // namespace ingot::kernels::hc
