// Copies each token's quantised input to the rows of its experts, as tiles of the tensor core
// (common/expert_rows.args.h).
// Launch contract (host twin: launch_shape in expert_gather.space.hpp)
//   grid (tokens)   block (HIDDEN / 32)   cluster none   smem none   arch sm_80 and later
//   programmatic dependent launch: yes
//
// A thread has 32 columns; four of them write a row's 128 bytes.
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "expert_gather.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "expert_gather.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(HIDDEN % 128 == 0 && HIDDEN / 32 <= 1024, "a thread has 32 columns");

extern "C" __global__ void __launch_bounds__(HIDDEN / 32)
    expert_gather(const __grid_constant__ ExpertGatherArgs args) {
  release_successor();
  wait_for_predecessor();
  const int token = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const uint4* const from =
      reinterpret_cast<const uint4*>(args.x + static_cast<i64>(token) * HIDDEN) + 2 * thread;
  const uint4 a = ptx::load_words(from), b = ptx::load_words(from + 1);
  const auto order = [](u32 word) { return ptx::permute(word, 0, EXPERT_BYTE_ORDER); };
  const uint4 first{order(a.x), order(a.z), order(b.x), order(b.z)};
  const uint4 second{order(a.y), order(a.w), order(b.y), order(b.w)};
  const float scale = thread < HIDDEN / 128
                          ? args.x_scale[static_cast<i64>(token) * args.scale_stride + thread]
                          : 0.0f;
  const i64 tile = static_cast<i64>(thread / 4) * args.row_pitch;
#pragma unroll
  for (int k = 0; k < TOPK; ++k) {
    const int row = args.row_of[token * TOPK + k];
    u8* const to = args.rows + (tile + row) * 128;
    const int chunk = thread % 4 * 2, swizzle = row % 8;
    *reinterpret_cast<uint4*>(to + (chunk ^ swizzle) * 16) = first;
    *reinterpret_cast<uint4*>(to + ((chunk + 1) ^ swizzle) * 16) = second;
    if (thread < HIDDEN / 128)
      args.row_scale[static_cast<i64>(thread) * args.row_pitch + row] = scale;
  }
}

}  // namespace ingot::kernels
