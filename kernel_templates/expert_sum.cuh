// The output of a mixture of experts: the routed experts' fp32 sum plus the shared expert's bf16
// output, rounded to bf16. Source: model specification section 3.11.
// Launch contract (host twin: launch_shape in expert_sum.space.hpp)
//   grid (ceil(tokens * hidden / VECTOR / THREADS))   block (THREADS)   cluster none   smem none
//   arch sm_80 and later   programmatic dependent launch: yes
//
// NaN, infinity and their sums stay in their channel.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "expert_sum.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "expert_sum.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(VECTOR == 4 || VECTOR == 8, "16-byte loads of the fp32 sums");

extern "C" __global__ void __launch_bounds__(THREADS)
    expert_sum(const __grid_constant__ ExpertSumArgs args) {
  const i64 at = (static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x) * VECTOR;
  release_successor();
  wait_for_predecessor();
  if (at >= static_cast<i64>(args.tokens) * args.hidden) return;
  float4 routed[VECTOR / 4];
#pragma unroll
  for (int i = 0; i < VECTOR / 4; ++i)
    routed[i] = reinterpret_cast<const float4*>(args.routed + at)[i];
  Bf16Vector<VECTOR> values = Bf16Vector<VECTOR>::load(args.shared + at);
#pragma unroll
  for (int i = 0; i < VECTOR / 4; ++i) {
    u32& first = values.pairs[2 * i];
    u32& second = values.pairs[2 * i + 1];
    first = pack_bf16(routed[i].x + low_to_float(first), routed[i].y + high_to_float(first));
    second = pack_bf16(routed[i].z + low_to_float(second), routed[i].w + high_to_float(second));
  }
  values.store(args.out + at);
}

}  // namespace ingot::kernels
