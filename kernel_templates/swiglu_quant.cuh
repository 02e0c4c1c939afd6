// The shared expert between its linears: silu of the clamped gate times the clamped up, rounded to
// bf16 and quantised for the down linear. Source: model specification sections 3.11 and 3.1.
// Launch contract (host twin: launch_shape in swiglu_quant.space.hpp)
//   grid (ceil(tokens * inter / 128 / (THREADS / 16)))   block (THREADS)   cluster none   smem none
//   arch sm_80 and later   programmatic dependent launch: yes
//
// The rounding to bf16 hides expf's last place (common/swiglu.cuh) but next to a boundary. NaN
// passes the clamps, and like a gate of minus infinity it makes its group's scale NaN and nothing
// else; infinity clamps to the largest code under the largest finite scale.
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/swiglu.cuh"
#include "fp8_linear.args.h"
#include "swiglu_quant.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "swiglu_quant.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(THREADS % 32 == 0, "groups are taken by half warps, shuffles by whole ones");

extern "C" __global__ void __launch_bounds__(THREADS)
    swiglu_quant(const __grid_constant__ SwigluQuantArgs args) {
  const int groups = args.inter / 128, part = threadIdx.x % 16;
  const int count = args.tokens * groups;
  const int wanted = static_cast<int>(blockIdx.x) * (THREADS / 16) + threadIdx.x / 16;
  const int item = min(wanted, count - 1);  // the last warp's idle half repeats its sibling
  const int token = item / groups, k = item % groups;
  release_successor();
  wait_for_predecessor();
  if (wanted / 2 * 2 >= count) return;  // the whole warp: the launch was for more tokens
  const i64 at = static_cast<i64>(token) * args.stride + k * 128 + part * 8;
  const Bf16Vector<8> gate = Bf16Vector<8>::load(args.gate + at);
  const Bf16Vector<8> up = Bf16Vector<8>::load(args.up + at);
  u32 h[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    h[i] = pack_bf16(swiglu(low_to_float(gate.pairs[i]), low_to_float(up.pairs[i]), args.limit),
                     swiglu(high_to_float(gate.pairs[i]), high_to_float(up.pairs[i]), args.limit));
  const fp8::Quantized group = fp8::quantize_group(make_uint4(h[0], h[1], h[2], h[3]));
  if (wanted >= count) return;
  const i64 line = static_cast<i64>(k) * args.rows + token;
  *reinterpret_cast<uint2*>(args.codes + (line - token % 8) * 128 +
                            fp8_tile_offset(token % 8, part * 8)) = group.codes;
  if (part == 0) args.scale[line] = group.scale;
}

}  // namespace ingot::kernels
