// Sums of each token's experts: fp32, by ascending id of the expert, which is the order of rows.
// Launch contract (host twin: launch_shape in expert_join.space.hpp)
//   grid (tokens)   block (expert_join_threads(HIDDEN))   cluster none   smem none
//   arch sm_80 and later   programmatic dependent launch: yes
//
// NaN and infinity stay in their channel of their token.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "expert_join.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "expert_join.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(HIDDEN % 8 == 0 && TOPK <= 32, "a lane has a row");
constexpr int THREADS = expert_join_threads(HIDDEN);

extern "C" __global__ void __launch_bounds__(THREADS)
    expert_join(const __grid_constant__ ExpertJoinArgs args) {
  release_successor();
  wait_for_predecessor();
  const int token = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  // Each lane has a row and finds its place among the others.
  const int mine = lane < TOPK ? args.row_of[token * TOPK + lane] : 0x7fffffff;
  int rows[TOPK];
  int place = 0;
#pragma unroll
  for (int k = 0; k < TOPK; ++k)
    place += __shfl_sync(~0u, mine, k) < mine ? 1 : 0;
#pragma unroll
  for (int k = 0; k < TOPK; ++k) {
    const u32 who = __ballot_sync(~0u, lane < TOPK && place == k);
    rows[k] = __shfl_sync(~0u, mine, __ffs(who) - 1);
  }
  for (int at = static_cast<int>(threadIdx.x) * 8; at < HIDDEN; at += THREADS * 8) {
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if constexpr (ROUND_EXPERTS) {
      uint4 words[TOPK];
#pragma unroll
      for (int k = 0; k < TOPK; ++k)
        words[k] = ptx::load_words(static_cast<const bf16*>(args.y) +
                                   static_cast<i64>(rows[k]) * HIDDEN + at);
#pragma unroll
      for (int k = 0; k < TOPK; ++k) {
        const u32 pairs[4] = {words[k].x, words[k].y, words[k].z, words[k].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[2 * i] += low_to_float(pairs[i]);
          sums[2 * i + 1] += high_to_float(pairs[i]);
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < TOPK; ++k) {
        const float* from =
            static_cast<const float*>(args.y) + static_cast<i64>(rows[k]) * HIDDEN + at;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 words = ptx::load_words(from + 4 * half);
          sums[4 * half] += __uint_as_float(words.x);
          sums[4 * half + 1] += __uint_as_float(words.y);
          sums[4 * half + 2] += __uint_as_float(words.z);
          sums[4 * half + 3] += __uint_as_float(words.w);
        }
      }
    }
    float4* const to = reinterpret_cast<float4*>(args.out + static_cast<i64>(token) * HIDDEN + at);
    to[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    to[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
  }
}

}  // namespace ingot::kernels
