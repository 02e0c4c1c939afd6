// Quantises bf16 activations for an FP8 or FP4 linear: e4m3 codes and one power-of-two scale per
// token and 128 columns. Source: model specification section 3.1.
// Launch contract (host twin: launch_shape in act_quant.space.hpp)
//   grid (ceil(tokens * cols / 128 / (THREADS / 16)))   block (THREADS)   arch sm_80 and later
//   smem none   programmatic dependent launch: yes
//
// NaN makes its group's scale NaN and nothing else; infinity clamps to the largest code under the
// largest finite scale; an all-zero group has the scale of amax = 1e-4 and zero codes.
#include "act_quant.args.h"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "fp8_linear.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "act_quant.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(THREADS % 32 == 0, "groups are taken by half warps, shuffles by whole ones");

extern "C" __global__ void __launch_bounds__(THREADS)
    act_quant(const __grid_constant__ ActQuantArgs args) {
  const int groups = args.cols / 128, part = threadIdx.x % 16;
  const i64 count = static_cast<i64>(args.tokens) * groups;
  const i64 wanted = static_cast<i64>(blockIdx.x) * (THREADS / 16) + threadIdx.x / 16;
  const i64 item = min(wanted, count - 1);  // the last warp's idle half repeats its sibling
  const int token = static_cast<int>(item / groups), k = static_cast<int>(item % groups);
  release_successor();
  wait_for_predecessor();
  const uint4 eight = *reinterpret_cast<const uint4*>(
      args.x + static_cast<i64>(token) * args.x_stride + k * 128 + part * 8);
  const fp8::Quantized group = fp8::quantize_group(eight);
  if (wanted >= count) return;
  const i64 tile_row = static_cast<i64>(k) * args.rows + token;
  fp8_e4m3* to =
      TILED ? args.codes + (tile_row - token % 8) * 128 + fp8_tile_offset(token % 8, part * 8)
            : args.codes + item * 128 + part * 8;
  *reinterpret_cast<uint2*>(to) = group.codes;
  if (part == 0)
    args.scale[TILED ? tile_row : static_cast<i64>(token) * act_quant_scale_stride(args.cols) + k] =
        group.scale;
}

}  // namespace ingot::kernels
