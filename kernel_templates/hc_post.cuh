// Behind a sublayer: X'_k = bf16(post_k * f + sum_j comb_jk * X_j) for the 4 streams of each token.
// hc_pre with AFTER_SUBLAYER does the same in front of the next sublayer, to the same bits; this is
// for where none follows. Source: model specification section 3.5, step 8.
// Launch contract (host twin: launch_shape in hc_post.space.hpp)
//   grid (ceil(HIDDEN / VECTOR / THREADS), tokens)   block (THREADS)   cluster none   smem none
//   arch sm_80 and later   programmatic dependent launch: yes
//
// NaN and infinity stay in their channel, those of post and comb in their token.
#include "common/bf16.cuh"
#include "common/hyper_connection.cuh"
#include "common/launch.cuh"
#include "hc_post.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "hc_post.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(HIDDEN % VECTOR == 0, "a stream is whole vectors");

extern "C" __global__ void __launch_bounds__(THREADS)
    hc_post(const __grid_constant__ HcPostArgs args) {
  const int vector = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
  const i64 token = blockIdx.y;
  release_successor();
  wait_for_predecessor();
  if (vector >= HIDDEN / VECTOR) return;
  const i64 first = token * (HC_STREAMS * HIDDEN) + vector * VECTOR;
  Bf16Vector<VECTOR> x[HC_STREAMS];
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s)
    x[s] = Bf16Vector<VECTOR>::load(args.streams + first + s * HIDDEN);
  const auto f = Bf16Vector<VECTOR>::load(args.sublayer + token * HIDDEN + vector * VECTOR);
  const auto expand = hc::Expand::load(args.post + token * HC_STREAMS, args.comb + token * 16);
#pragma unroll
  for (int p = 0; p < VECTOR / 2; ++p) {
    u32 pairs[HC_STREAMS];
#pragma unroll
    for (int s = 0; s < HC_STREAMS; ++s)
      pairs[s] = x[s].pairs[p];
    expand.apply(pairs, f.pairs[p]);
#pragma unroll
    for (int s = 0; s < HC_STREAMS; ++s)
      x[s].pairs[p] = pairs[s];
  }
#pragma unroll
  for (int s = 0; s < HC_STREAMS; ++s)
    x[s].store(args.out + first + s * HIDDEN);
}

}  // namespace ingot::kernels
