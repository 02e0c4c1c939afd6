#pragma once
// The end of a token that several blocks finish (FINISHERS > 1), each some groups of its channels:
// they meet in the sum of its squares, once more through the L2. The family's parameters and what
// hc_pre.cuh derives from them are in scope. Source: model specification section 3.5.
#include "common/hc_finish.cuh"
#include "common/hc_mixing.cuh"

namespace ingot::kernels::hc {

// All groups' sums of squares of a token, for one of its finishers.
__forceinline__ char* squares_at(const HcPreArgs& args, int token, int finisher) {
  return static_cast<char*>(args.workspace) +
         hc_pre_sums_bytes(args.tokens, SPLIT_K, FINISHERS, HEAD) +
         (static_cast<i64>(token) * FINISHERS + finisher) * (GROUPS * 4);
}
// Their sum, by one warp, in an order that does not depend on who has which group. Leaves the
// workspace as it was.
__forceinline__ float gather_squares(const HcPreArgs& args, int token, int finisher, int lane) {
  float total = 0.0f;
  for (int group = lane; group < GROUPS; group += 32) {
    char* const at = squares_at(args, token, finisher) + group * 4;
    u32 word;
    do
      word = ptx::load_relaxed_word(at);
    while (word == split_k::kNothing);
    ptx::store_relaxed(at, split_k::kNothing);
    total += __uint_as_float(word);
  }
  __syncwarp();
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    total += __shfl_xor_sync(0xffffffffu, total, lanes);
  return total;
}

// One lane's channels of the groups that its warp finishes.
struct Share {
  u32 pairs[SHARE_STEPS][2][HC_STREAMS];
  uint2 f[SHARE_STEPS];

  // -1: no more groups
  static __forceinline__ int group_of(int finisher, int step, int warp) {
    const int at = step * WARPS + warp, group = finisher * BLOCK_GROUPS + at;
    return at < BLOCK_GROUPS && group < GROUPS ? group : -1;
  }
  static __forceinline__ int channel_of(int group, int lane) { return group * HC_GROUP + lane * 4; }
  static __forceinline__ bool exists(int group, int lane) {
    return group >= 0 && (HIDDEN % HC_GROUP == 0 || channel_of(group, lane) < HIDDEN);
  }
  __forceinline__ void load(const HcPreArgs& args, int token, int finisher, int warp, int lane) {
    const i64 row = static_cast<i64>(token) * HIDDEN;
#pragma unroll
    for (int step = 0; step < SHARE_STEPS; ++step) {
      const int group = group_of(finisher, step, warp);
      const bool loads = token < args.tokens && exists(group, lane);
      const bf16* const from = args.streams + row * HC_STREAMS + channel_of(group, lane);
#pragma unroll
      for (int s = 0; s < HC_STREAMS; ++s) {
        const uint2 two =
            loads ? *reinterpret_cast<const uint2*>(from + s * HIDDEN) : make_uint2(0, 0);
        pairs[step][0][s] = two.x, pairs[step][1][s] = two.y;
      }
      if (AFTER_SUBLAYER)
        f[step] =
            loads ? *reinterpret_cast<const uint2*>(args.sublayer + row + channel_of(group, lane))
                  : make_uint2(0, 0);
    }
  }
  // Makes the streams behind the sublayer of the token that load() was called with.
  __forceinline__ void make_streams(const HcPreArgs& args, int token, int finisher, int warp,
                                    int lane) {
    const auto expand = Expand::load(args.post_in + static_cast<i64>(token) * HC_STREAMS,
                                     args.comb_in + static_cast<i64>(token) * 16);
#pragma unroll
    for (int step = 0; step < SHARE_STEPS; ++step) {
      const int group = group_of(finisher, step, warp);
      if (!exists(group, lane)) continue;
      expand.apply(pairs[step][0], f[step].x);
      expand.apply(pairs[step][1], f[step].y);
      bf16* const to = args.streams_out + static_cast<i64>(token) * HIDDEN * HC_STREAMS +
                       channel_of(group, lane);
#pragma unroll
      for (int s = 0; s < HC_STREAMS; ++s)
        *reinterpret_cast<uint2*>(to + s * HIDDEN) =
            make_uint2(pairs[step][0][s], pairs[step][1][s]);
    }
  }
};

// What finishing needs of the weights, asked for before the launch's turn.
struct EndWeights {
  uint2 norm[SHARE_STEPS];
  float base[HC_STREAMS], scale;

  __forceinline__ void load(const HcPreArgs& args, int finisher, int warp, int lane) {
#pragma unroll
    for (int step = 0; step < SHARE_STEPS; ++step) {
      const int group = Share::group_of(finisher, step, warp);
      norm[step] = Share::exists(group, lane)
                       ? *reinterpret_cast<const uint2*>(args.norm + Share::channel_of(group, lane))
                       : make_uint2(0, 0);
    }
#pragma unroll
    for (int i = 0; i < HC_STREAMS; ++i)
      base[i] = args.base[i];
    scale = args.scale[0];
  }
};

// Column warps: this block's share of the rest of one token, whose streams have been asked for.
__forceinline__ void finish_share(const HcPreArgs& args, u8* shared, Share& share,
                                  const EndWeights& weights, int token, int round, int finisher,
                                  int warp, int lane) {
  if (AFTER_SUBLAYER && warp < BLOCK_GROUPS) share.make_streams(args, token, finisher, warp, lane);
  float* const gathered =
      reinterpret_cast<float*>(shared + SIZES.gathered) + round % 2 * (WARPS * VALUES);
  if (warp >= FIRST_GATHERING) gather(args, gathered, token, finisher, warp, lane);
  ptx::sync_threads(0, THREADS);

  float pre[HC_STREAMS] = {};
  const float squares = add_shares(gathered, pre);
  stream_weights(pre, inverse_rms(squares, HC_STREAMS * HIDDEN, args.norm_epsilon), weights.base,
                 weights.scale, args.hc_epsilon);
  uint2 u[SHARE_STEPS];
#pragma unroll
  for (int step = 0; step < SHARE_STEPS; ++step) {
    const int group = Share::group_of(finisher, step, warp);
    if (group < 0) continue;
    float group_squares = 0.0f;
    u[step].x = collapse_pair(share.pairs[step][0], pre, group_squares);
    u[step].y = collapse_pair(share.pairs[step][1], pre, group_squares);
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
      group_squares += __shfl_xor_sync(0xffffffffu, group_squares, lanes);
    if (lane < FINISHERS)
      ptx::store_relaxed(squares_at(args, token, lane) + group * 4, __float_as_uint(group_squares));
  }
  float* const all_squares = reinterpret_cast<float*>(shared + SIZES.squares);
  if (warp == 0) {
    const float total = gather_squares(args, token, finisher, lane);
    if (lane == 0) *all_squares = total;
    // All finishers have made the token's streams: the extra warp may store its post and comb.
    if (!HEAD && round % FINISHERS == finisher) ptx::arrive_threads(STREAMS_MADE, 64);
  }
  ptx::sync_threads(1, COLUMN_THREADS);
  const float scale = inverse_rms(*all_squares, HIDDEN, args.norm_epsilon);
#pragma unroll
  for (int step = 0; step < SHARE_STEPS; ++step) {
    const int group = Share::group_of(finisher, step, warp);
    if (group < 0) continue;
    const uint2 y = normalize(weights.norm[step], u[step], scale);
    if (Share::exists(group, lane))
      *reinterpret_cast<uint2*>(args.out + static_cast<i64>(token) * HIDDEN +
                                Share::channel_of(group, lane)) = y;
    if constexpr (QUANTIZE) store_quantized_group<HIDDEN>(args, token, group, lane, y);
  }
}

}  // namespace ingot::kernels::hc
