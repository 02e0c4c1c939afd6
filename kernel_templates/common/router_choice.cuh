#pragma once
// The router's choice for one token, by a whole warp: scores sqrt(softplus) of its logits, the TOP
// best of score + bias with ties to the lowest id (or those that a table lists), weights that sum
// to the route scale. Source: model specification section 3.11.
//
// A NaN score is never chosen before a number: it counts as -inf, so ids are in range and distinct
// whatever comes in; the token's weights are NaN where the reference's are. A token id outside the
// table takes row 0.
#include "common/ptx.cuh"
#include "common/split_k.cuh"
#include "router_topk.args.h"

namespace ingot::kernels::router {

// A token's logits, of all lanes together: word w of lane l holds experts 4 * (32 * w + l) and the
// three after it.
template <int EXPERTS>
struct Logits {
  static constexpr int WORDS = (EXPERTS / 4 + 31) / 32;
  uint4 words[WORDS];

  static __forceinline__ int first_expert(int w, int lane) { return 4 * (32 * w + lane); }
  static __forceinline__ bool exists(int w, int lane) { return first_expert(w, lane) < EXPERTS; }

  // @param from  [EXPERTS]
  __forceinline__ void load(const float* from, int lane) {
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
      if (exists(w, lane)) words[w] = *reinterpret_cast<const uint4*>(from + first_expert(w, lane));
  }
  // The same from where other blocks put them as they have them: every word is its own flag
  // (common/split_k.cuh) and is put back to kNothing.
  __forceinline__ void take(float* from, int lane) {
    const uint4 nothing =
        make_uint4(split_k::kNothing, split_k::kNothing, split_k::kNothing, split_k::kNothing);
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
      words[w] = nothing;
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int w = 0; w < WORDS; ++w)
        if (exists(w, lane) && split_k::incomplete(words[w])) {
          words[w] = ptx::load_relaxed(from + first_expert(w, lane));
          missing = true;
        }
    } while (missing);
    __syncwarp();
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
      if (exists(w, lane)) ptx::store_relaxed(from + first_expert(w, lane), nothing);
  }
};

// sqrt(softplus(x)), in the form that neither overflows nor cancels.
__forceinline__ float score_of(float x) {
  return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
}
// Order of unsigned numbers = order of floats; NaN lies with -inf. Above 0, which marks what has
// been taken.
__forceinline__ u32 order_of(float x) {
  const u32 bits = __float_as_uint(x == x ? x + 0.0f : __uint_as_float(0xff800000u));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The expert that the table lists in this lane's place; of lanes from TOP on 0.
template <int EXPERTS, int TOP>
__forceinline__ int listed_expert(const RouterTopkArgs& args, int token, int lane) {
  const int id = args.ids[token];
  const i64 row = static_cast<u32>(id) < static_cast<u32>(args.vocabulary) ? id : 0;
  return lane < TOP ? min(static_cast<int>(args.table[row * TOP + lane]), EXPERTS - 1) : 0;
}

// @param scores   [EXPERTS] of this warp
// @param bias_of  bias of word w's element e; called when not HASH
// @param listed   this lane's listed_expert() when HASH
template <int EXPERTS, int TOP, bool HASH, class BiasOf>
__forceinline__ void choose(const RouterTopkArgs& args, const Logits<EXPERTS>& logits,
                            float* scores, int token, int lane, BiasOf bias_of, int listed) {
  constexpr int WORDS = Logits<EXPERTS>::WORDS;
  u32 keys[WORDS][4];
#pragma unroll
  for (int w = 0; w < WORDS; ++w) {
    const u32 four[4] = {logits.words[w].x, logits.words[w].y, logits.words[w].z,
                         logits.words[w].w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      keys[w][e] = 0;
      const int id = 4 * (32 * w + lane) + e;
      if (id < EXPERTS) {
        const float x = __uint_as_float(four[e]);
        const float score = x == x ? score_of(x) : x;  // fmaxf would lose the NaN
        scores[id] = score;
        if constexpr (!HASH) keys[w][e] = order_of(score + bias_of(w, e));
      }
    }
  }
  __syncwarp();
  int mine = 0;  // of lane i < TOP: the i-th expert
  if constexpr (HASH) {
    mine = listed;
  } else {
#pragma unroll 1
    for (int i = 0; i < TOP; ++i) {
      u32 best = 0;
      int at = EXPERTS;
#pragma unroll
      for (int w = 0; w < WORDS; ++w)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (keys[w][e] > best) {  // ids ascend: the lowest of equals stays
            best = keys[w][e];
            at = 4 * (32 * w + lane) + e;
          }
      const u32 top = __reduce_max_sync(0xffffffffu, best);
      const int id = static_cast<int>(
          __reduce_min_sync(0xffffffffu, static_cast<u32>(best == top ? at : EXPERTS)));
#pragma unroll
      for (int w = 0; w < WORDS; ++w)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (4 * (32 * w + lane) + e == id) keys[w][e] = 0;
      if (lane == i) mine = id;
    }
  }
  const float score = lane < TOP ? scores[mine] : 0.0f;
  float sum = 0.0f;  // in the order of the choice, as the reference adds
#pragma unroll
  for (int i = 0; i < TOP; ++i)
    sum += __shfl_sync(0xffffffffu, score, i);
  if (lane < TOP) {
    args.experts[static_cast<i64>(token) * TOP + lane] = mine;
    args.weights[static_cast<i64>(token) * TOP + lane] = score / sum * args.route_scale;
  }
  __syncwarp();
}

}  // namespace ingot::kernels::router
