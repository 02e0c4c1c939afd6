// Copies each token's quantised input to the rows of its experts, as tiles of the tensor core
// (common/expert_rows.args.h).
// Launch contract (host twin: launch_shape in expert_gather.space.hpp)
//   grid (tokens)   block (HIDDEN / 32)   cluster none   smem none   arch sm_80 and later
//   programmatic dependent launch: yes
//
// A thread has 32 columns; four of them write a row's 128 bytes.
//
// ROW_SCALES: a product needs no scale but the row's where its codes share one. Scales are powers
// of two, so a code at a larger scale is the same number with a smaller exponent. It is rounded
// where it falls among e4m3's denormals, by at most 2^-10 of the larger scale; a group whose scale
// is the token's largest reaches at least 224 of it (or all groups have the smallest scale that
// there is, and none is rounded): less than 5e-6 of the token's largest value.
// A token with a NaN has a NaN scale.
#include "common/f16.cuh"
#include "common/fp8.cuh"
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

// The largest of a token's scales, which are not negative; NaN is larger than any.
__forceinline__ u32 largest_scale(const float* scales) {
  u32 bits = 0;
#pragma unroll 8
  for (int group = 0; group < HIDDEN / 128; ++group)
    bits = max(bits, __float_as_uint(scales[group]));
  return bits;
}
// Four codes times a power of two up to 1; `factor` is that of their f16 numbers.
__forceinline__ u32 rescale(u32 codes, float factor) {
  const auto pair = [&](u32 halves) {
    return fp8::from_floats(f16_low_to_float(halves) * factor, f16_high_to_float(halves) * factor);
  };
  return pair(fp8::to_f16(codes)) | pair(fp8::high_to_f16(codes)) << 16;
}

extern "C" __global__ void __launch_bounds__(HIDDEN / 32)
    expert_gather(const __grid_constant__ ExpertGatherArgs args) {
  release_successor();
  wait_for_predecessor();
  const int token = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const uint4* const from =
      reinterpret_cast<const uint4*>(args.x + static_cast<i64>(token) * HIDDEN) + 2 * thread;
  uint4 a = ptx::load_words(from), b = ptx::load_words(from + 1);
  const float* const scales = args.x_scale + static_cast<i64>(token) * args.scale_stride;
  float scale = 0.0f;  // for row_scale
  if constexpr (ROW_SCALES) {
    const u32 own = __float_as_uint(scales[thread / 4]), largest = largest_scale(scales);
    scale = __uint_as_float(largest);
    if (own != largest) {
      // 2^-126 and less leave nothing of a code.
      const u32 exponent = 127 - min((largest - own) >> 23, 126u);
      const float factor = __uint_as_float(exponent << 23) * fp8::kF16Factor;
      for (u32* const word : {&a.x, &a.y, &a.z, &a.w, &b.x, &b.y, &b.z, &b.w})
        *word = rescale(*word, factor);
    }
  } else if (thread < HIDDEN / 128) {
    scale = scales[thread];
  }
  const auto order = [](u32 word) { return ptx::permute(word, 0, EXPERT_BYTE_ORDER); };
  const uint4 first{order(a.x), order(a.z), order(b.x), order(b.z)};
  const uint4 second{order(a.y), order(a.w), order(b.y), order(b.w)};
  const i64 tile = static_cast<i64>(thread / 4) * args.row_pitch;
#pragma unroll
  for (int k = 0; k < TOPK; ++k) {
    const int row = args.row_of[token * TOPK + k];
    u8* const to = args.rows + (tile + row) * 128;
    const int chunk = thread % 4 * 2, swizzle = row % 8;
    *reinterpret_cast<uint4*>(to + (chunk ^ swizzle) * 16) = first;
    *reinterpret_cast<uint4*>(to + ((chunk + 1) ^ swizzle) * 16) = second;
    if (thread < (ROW_SCALES ? 1 : HIDDEN / 128))
      args.row_scale[static_cast<i64>(thread) * args.row_pitch + row] = scale;
  }
}

}  // namespace ingot::kernels
