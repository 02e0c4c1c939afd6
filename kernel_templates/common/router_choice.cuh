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

// The same of NaN, which stays NaN: fmaxf would lose it.
__forceinline__ float score_of_any(float x) {
  return x == x ? score_of(x) : x;
}

// Experts of a lane, where each has as many and lanes have them in order.
template <int EXPERTS>
constexpr int lane_experts() {
  return (EXPERTS + 31) / 32;
}

// The TOP greatest keys of a warp; lane i < TOP gets the i-th's expert. Of equal keys the lowest
// expert comes first. Keys are lost.
// @param id_of(n)  the expert of the lane's n-th key; ascending
template <int EXPERTS, int TOP, int COUNT, class IdOf>
__forceinline__ int pick(u32 (&keys)[COUNT], int lane, IdOf id_of) {
  int mine = 0;
#pragma unroll 1
  for (int i = 0; i < TOP; ++i) {
    // Neighbours first: then ids ascend in every round, and the lowest of equals is the left one.
    u32 best[COUNT];
    int at[COUNT];
#pragma unroll
    for (int n = 0; n < COUNT; ++n)
      best[n] = keys[n], at[n] = id_of(n);
#pragma unroll
    for (int distance = 1; distance < COUNT; distance *= 2)
#pragma unroll
      for (int n = 0; n + distance < COUNT; n += 2 * distance) {
        const bool right = best[n + distance] > best[n];
        best[n] = right ? best[n + distance] : best[n];
        at[n] = right ? at[n + distance] : at[n];
      }
    const u32 top = __reduce_max_sync(0xffffffffu, best[0]);
    const int id = static_cast<int>(
        __reduce_min_sync(0xffffffffu, static_cast<u32>(best[0] == top ? at[0] : EXPERTS)));
#pragma unroll
    for (int n = 0; n < COUNT; ++n)
      if (id_of(n) == id) keys[n] = 0;
    if (lane == i) mine = id;
  }
  return mine;
}

// Stores the choice and its weights.
// @param scores  [EXPERTS]
// @param mine    of lane i < TOP: the i-th expert
template <int TOP>
__forceinline__ void store_choice(const RouterTopkArgs& args, const float* scores, int mine,
                                  int token, int lane) {
  const float score = lane < TOP ? scores[mine] : 0.0f;
  float sum = 0.0f;  // in the order of the choice, as the reference adds
#pragma unroll
  for (int i = 0; i < TOP; ++i)
    sum += __shfl_sync(0xffffffffu, score, i);
  if (lane < TOP) {
    args.experts[static_cast<i64>(token) * TOP + lane] = mine;
    args.weights[static_cast<i64>(token) * TOP + lane] = score / sum * args.route_scale;
  }
}

}  // namespace ingot::kernels::router
